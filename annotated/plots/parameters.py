"""Where the parameters are (Table 3), counted from the settings alone, no model built."""

from annotated.transformer.model import TransformerConfig


def count_parameters(config: TransformerConfig) -> dict[str, int]:
    """How many trained numbers each component holds; matrices that are shared count once, as embeddings."""
    c, d = config, config.d_model
    attention = 4 * (d * d + d)
    feed_forward = (d * c.d_ff + c.d_ff) + (c.d_ff * d + d)
    matrices = {"all": c.tgt_vocab, "target": c.src_vocab + c.tgt_vocab, "none": c.src_vocab + c.tgt_vocab}
    norms = 5 * c.N + (2 if c.norm_first else 0)  # two a layer in the encoder, three in the decoder
    return {
        "embeddings": matrices[c.tied_embeddings] * d,
        "positions": 2 * c.max_len * d if c.positions == "learned" else 0,
        "encoder self-attention": c.N * attention,
        "decoder self-attention": c.N * attention,
        "cross-attention": c.N * attention,
        "feed-forward": 2 * c.N * feed_forward,
        "layer norms": norms * 2 * d,
        "output": c.tgt_vocab + (c.tgt_vocab * d if c.tied_embeddings == "none" else 0),
    }
