"""hyunwoongko/transformer."""

from models.layers.layer_norm import LayerNorm
from models.layers.multi_head_attention import MultiHeadAttention
from models.layers.position_wise_feed_forward import PositionwiseFeedForward
from models.layers.scale_dot_product_attention import ScaleDotProductAttention
from models.model.transformer import Transformer
from util.bleu import get_bleu

REPOSITORY = "https://github.com/hyunwoongko/transformer"
COMMIT = "63286547b9cd174a6cfc204832271814d685181f"

PAD = 1
MASK_DIMS = 4


def bleu(hypotheses, references):
    return get_bleu([h.split() for h in hypotheses], [r.split() for r in references])


def make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
    return Transformer(PAD, PAD, 2, src_vocab, tgt_vocab, d_model, h, 64, d_ff, N, dropout, "cpu")
