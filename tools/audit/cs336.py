"""MartinTschechne/cs336g-a1-basics: a decoder alone, held to the laws of what follows the source."""

import importlib.metadata

importlib.metadata.version = lambda name: "0"  # it is not installed, only cloned

from cs336_basics.model import TransformerLM, scaled_dot_product_attention as attention
from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE

REPOSITORY = "https://github.com/MartinTschechne/cs336g-a1-basics"
COMMIT = "3a477e66eca912e973ece55946ad7aded4d48995"
NEEDS = "jaxtyping wadler-lindig"


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, d_ff, h):
        super().__init__()
        self.lm = TransformerLM(tgt_vocab, 64, d_model, N, h, d_ff, 10000)

    def forward(self, src, tgt):
        return self.lm(tgt)


make_model = LanguageModel
