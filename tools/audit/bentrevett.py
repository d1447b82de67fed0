"""bentrevett/pytorch-seq2seq, its tutorial 6."""

import json

import torch

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/bentrevett/pytorch-seq2seq"
COMMIT = "b3cd54c72cd6e4e63f672d334c795b4fe744ef92"

MASK_DIMS = 4

notebook = json.loads((clone_of(__file__) / "legacy/6 - Attention is All You Need.ipynb").read_text("utf-8"))
code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
theirs = definitions(code)


def MultiHeadAttention(h, d_model, dropout):
    return theirs["MultiHeadAttentionLayer"](d_model, h, dropout, "cpu")


def PositionwiseFeedForward(d_model, d_ff, dropout):
    return theirs["PositionwiseFeedforwardLayer"](d_model, d_ff, dropout)


def make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, pad):
    encoder = theirs["Encoder"](src_vocab, d_model, N, h, d_ff, dropout, "cpu")
    decoder = theirs["Decoder"](tgt_vocab, d_model, N, h, d_ff, dropout, "cpu")
    model = theirs["Seq2Seq"](encoder, decoder, pad, pad, "cpu")
    for module in model.modules():  # as its `initialize_weights` does
        if hasattr(module, "weight") and module.weight.dim() > 1:
            torch.nn.init.xavier_uniform_(module.weight)
    return model
