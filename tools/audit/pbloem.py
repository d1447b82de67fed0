"""pbloem/former: a decoder alone, so its model is held to the laws of what follows the source."""

from former import GTransformer
from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE

REPOSITORY = "https://github.com/pbloem/former"
COMMIT = "ad9cc703b0b82a24a12e777f5946296f352c9d11"


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, h):
        super().__init__()
        self.former = GTransformer(d_model, h, N, 64, tgt_vocab)

    def forward(self, src, tgt):
        return self.former(tgt)


make_model = LanguageModel
