"""x-transformers: its encoder-decoder, with the defaults of its README."""

from torch import nn
from x_transformers import XTransformer

VERSION = "2.26.4"
NEEDS = "x-transformers==2.26.4 einops einx loguru torch-einops-utils frozendict"


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, h, dropout):
        super().__init__()
        sides = {}
        for side, vocab in (("enc", src_vocab), ("dec", tgt_vocab)):
            sides |= {f"{side}_num_tokens": vocab, f"{side}_depth": N, f"{side}_heads": h}
            sides |= {
                f"{side}_attn_dropout": dropout,
                f"{side}_ff_dropout": dropout,
                f"{side}_max_seq_len": 64,
            }
        self.whole = XTransformer(dim=d_model, **sides)

    def encode(self, src, src_mask):
        return self.whole.encoder(src, mask=src_mask.squeeze(1), return_embeddings=True)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.whole.decoder.net(tgt, context=memory, context_mask=src_mask.squeeze(1))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


make_model = Model
