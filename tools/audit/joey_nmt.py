"""JoeyNMT."""

from joeynmt.decoders import TransformerDecoder
from joeynmt.embeddings import Embeddings as Table
from joeynmt.encoders import TransformerEncoder
from joeynmt.helpers import subsequent_mask
from joeynmt.initialization import initialize_model
from joeynmt.loss import XentLoss
from joeynmt.transformer_layers import MultiHeadedAttention, PositionalEncoding
from torch import nn

REPOSITORY = "https://github.com/joeynmt/joeynmt"
COMMIT = "cdc4d03d430a1b0f29793a0d95743c5e72ae2f6c"
NEEDS = "subword-nmt importlib_metadata zipp"

PAD = 1


def Embeddings(d_model, vocab):
    return Table(d_model, scale=True, vocab_size=vocab, padding_idx=PAD)


def LabelSmoothing(log_probs, target, smoothing, pad):
    return XentLoss(pad, smoothing)(log_probs, trg=target)


class Model(nn.Module):
    """Encoder, decoder and embeddings, put together as `joeynmt.model.build_model` does, without files."""

    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
        super().__init__()
        sizes = {"hidden_size": d_model, "ff_size": d_ff, "num_layers": N, "num_heads": h}
        sizes |= {"dropout": dropout, "emb_dropout": dropout, "layer_norm": "pre"}
        self.src_embed = Table(d_model, scale=True, vocab_size=src_vocab, padding_idx=PAD)
        self.trg_embed = Table(d_model, scale=True, vocab_size=tgt_vocab, padding_idx=PAD)
        self.encoder = TransformerEncoder(**sizes)
        self.decoder = TransformerDecoder(**sizes, vocab_size=tgt_vocab)
        config = {"encoder": {"type": "transformer", "num_layers": N}, "decoder": {"type": "transformer"}}
        initialize_model(self, config, PAD, PAD)

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), None, src_mask)[0]

    def decode(self, memory, src_mask, tgt, tgt_mask):
        steps = tgt.size(1)
        padding = (tgt != PAD).unsqueeze(1)  # the decoder adds the causal mask itself
        return self.decoder(self.trg_embed(tgt), memory, None, src_mask, steps, None, padding)[0]


make_model = Model
