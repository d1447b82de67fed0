"""Marian in Hugging Face's transformers."""

from torch import nn
from transformers import MarianConfig, MarianMTModel
from transformers.modeling_outputs import BaseModelOutput

PACKAGE = "transformers"


class Model(nn.Module):
    def __init__(self, tgt_vocab, N, d_model, d_ff, h, dropout):
        super().__init__()
        sizes = {"vocab_size": tgt_vocab, "d_model": d_model, "dropout": dropout}
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": N, f"{side}_attention_heads": h, f"{side}_ffn_dim": d_ff}
        fixed = {"max_position_embeddings": 64, "scale_embedding": True, "use_cache": False}
        fixed |= {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
        self.whole = MarianMTModel(MarianConfig(**sizes, **fixed))

    def encode(self, src, src_mask):
        return self.whole.get_encoder()(src, attention_mask=src_mask.squeeze(1)).last_hidden_state

    def decode(self, memory, src_mask, tgt, tgt_mask):
        memory = BaseModelOutput(last_hidden_state=memory)
        masks = {"attention_mask": src_mask.squeeze(1), "decoder_attention_mask": (tgt != 0)}
        return self.whole(encoder_outputs=memory, decoder_input_ids=tgt, **masks).logits


make_model = Model


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding as Table

        self.table = Table(max_len, d_model)
        if hasattr(self.table, "create_weight"):
            self.table.weight.data = self.table.create_weight()

    def forward(self, x):
        return x + self.table(x.shape[:2])
