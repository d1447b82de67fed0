"""gordicaleksa/pytorch-original-transformer."""

from models.definitions.transformer_model import (
    DecoderGenerator,
    Embedding,
    MultiHeadedAttention as Heads,
    PositionalEncoding,
    PositionwiseFeedForwardNet,
    SublayerLogic,
    Transformer,
)

REPOSITORY = "https://github.com/gordicaleksa/pytorch-original-transformer"
COMMIT = "d5b29a41c5c3f68e1bcd0c528a58281632fa9d6d"

MASK_DIMS = 4


def Generator(d_model, vocab):
    return DecoderGenerator(d_model, vocab)


def Embeddings(d_model, vocab):
    return Embedding(vocab, d_model)


def MultiHeadAttention(h, d_model, dropout):
    return Heads(d_model, h, dropout, log_attention_weights=False)


def PositionwiseFeedForward(d_model, dropout):
    return PositionwiseFeedForwardNet(d_model, dropout)


def SublayerConnection(size, dropout):
    layer = SublayerLogic(size, dropout)
    layer.forward = lambda x, sublayer: type(layer).forward(layer, x, sublayer)
    return layer


def attention(query, key, value, mask=None):
    heads = Heads(query.size(-1), 1, 0.0, log_attention_weights=False).eval()
    return heads.attention(query, key, value, mask)


def make_model(src_vocab, tgt_vocab, N, d_model, h, dropout):
    return Transformer(d_model, src_vocab, tgt_vocab, h, N, dropout)
