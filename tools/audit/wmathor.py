"""wmathor/nlp-tutorial, its Transformer."""

import torch
from torch import nn

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/wmathor/nlp-tutorial"
COMMIT = "a4511086b5fe530c77326d8ff3b1a763d792c359"
FOLDER = "5-1.Transformer"

torch.Tensor.cuda = nn.Module.cuda = lambda self: self  # there is no GPU here
SIZES = {"d_model": 24, "d_ff": 40, "d_k": 6, "d_v": 6, "n_layers": 2, "n_heads": 4}
TEXT = (clone_of(__file__) / FOLDER / "Transformer_Torch.py").read_text("utf-8")
TRUE_HIDES = True


def make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h):
    sizes = {"src_vocab_size": src_vocab, "tgt_vocab_size": tgt_vocab, "n_layers": N, "n_heads": h}
    width = d_model // h
    names = definitions(TEXT, d_model=d_model, d_ff=d_ff, d_k=width, d_v=width, **sizes)
    return names["Transformer"]()
