"""aladdinpersson's "Transformer from scratch", the code of a popular video."""

from transformer_from_scratch import SelfAttention as MultiHeadAttention, Transformer

REPOSITORY = "https://github.com/aladdinpersson/Machine-Learning-Collection"
COMMIT = "3b8992fe274f31df61464fc127cde9ffb34896e7"
FOLDER = "ML/Pytorch/more_advanced/transformer_from_scratch"

MASK_DIMS = 4


def make_model(src_vocab, tgt_vocab, N, d_model, h, dropout, pad, max_len):
    return Transformer(src_vocab, tgt_vocab, pad, pad, d_model, N, 2, h, dropout, "cpu", max_len)
