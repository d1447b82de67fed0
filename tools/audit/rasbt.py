"""rasbt/LLMs-from-scratch, chapter 4: a decoder alone, held to the laws of what follows the source."""

from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE, clone_of, definitions

REPOSITORY = "https://github.com/rasbt/LLMs-from-scratch"
COMMIT = "28c65cdfbc3338e2e040016eea4b7fdf556e4d57"
FOLDER = "ch04/01_main-chapter-code"

book = definitions((clone_of(__file__) / FOLDER / "gpt.py").read_text("utf-8"))
LayerNorm = book["LayerNorm"]


def FeedForward(d_model):
    return book["FeedForward"]({"emb_dim": d_model})


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, h, dropout):
        super().__init__()
        config = {
            "vocab_size": tgt_vocab,
            "context_length": 64,
            "emb_dim": d_model,
            "n_heads": h,
            "n_layers": N,
        }
        self.gpt = book["GPTModel"](config | {"drop_rate": dropout, "qkv_bias": False})

    def forward(self, src, tgt):
        return self.gpt(tgt)


make_model = LanguageModel
