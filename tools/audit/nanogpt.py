"""karpathy/nanoGPT: a decoder alone, so its model is held to the laws of what follows the source."""

from model import GPT, GPTConfig, LayerNorm as OptionalBias
from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE

REPOSITORY = "https://github.com/karpathy/nanoGPT"
COMMIT = "3adf61e154c3fe3fca428ad6bc3818b27a3b8291"


def LayerNorm(d_model):
    return OptionalBias(d_model, bias=True)


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, h, dropout):
        super().__init__()
        config = GPTConfig(64, tgt_vocab, N, h, d_model, dropout)
        self.gpt = GPT(config)

    def forward(self, src, tgt):
        tgt = tgt.contiguous()
        return self.gpt(tgt, tgt)[0]  # without targets it answers for the last position alone


make_model = LanguageModel
