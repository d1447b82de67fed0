"""Skumarr53/Attention-is-All-you-Need-PyTorch."""

from torch import nn

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/Skumarr53/Attention-is-All-you-Need-PyTorch"
COMMIT = "3d339d6b1bf98ad723117e7914be7f333b3d6c4d"
FOLDER = "transformer"

theirs = definitions((clone_of(__file__) / FOLDER / "model.py").read_text("utf-8"))
PositionalEncoding = theirs["PositionalEncoding"]


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, pad):
        super().__init__()
        width = d_model // h
        sizes = src_vocab, tgt_vocab, d_model, d_ff, width, width, h, N
        self.whole = theirs["Translation"](*sizes, pad, pad, "cpu")

    def forward(self, src, tgt):
        return self.whole(src, tgt, None)[0]


make_model = Model
