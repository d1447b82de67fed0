"""graykode/nlp-tutorial, its Transformer, with positions for any length."""

import torch

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/graykode/nlp-tutorial"
COMMIT = "d05e31ec81d56d70c1db89b99ab07e948f7ebc11"
FOLDER = "5-1.Transformer"
TRUE_HIDES = True

TEXT = (clone_of(__file__) / FOLDER / "Transformer.py").read_text("utf-8")
FIXED = {"torch.LongTensor([[1,2,3,4,0]])": "enc_inputs", "torch.LongTensor([[5,1,2,3,4]])": "dec_inputs"}
for places, tokens in FIXED.items():  # its sentences have five words, whose places it writes down
    TEXT = TEXT.replace(places, f"torch.arange({tokens}.size(1)).expand_as({tokens})")


def parts(d_model, h, **sizes):
    width = d_model // h
    sizes |= {"d_model": d_model, "n_heads": h, "d_k": width, "d_v": width}
    return definitions(TEXT, src_len=63, tgt_len=63, **sizes)


def attention(query, key, value, mask):
    return parts(query.size(-1), 1)["ScaledDotProductAttention"]()(query, key, value, mask)


def MultiHeadedAttention(h, d_model):
    return parts(d_model, h)["MultiHeadAttention"]()


def subsequent_mask(size):
    return parts(1, 1)["get_attn_subsequent_mask"](torch.zeros(1, size))


def make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h):
    sizes = {"src_vocab_size": src_vocab, "tgt_vocab_size": tgt_vocab, "n_layers": N, "d_ff": d_ff}
    return parts(d_model, h, **sizes)["Transformer"]()
