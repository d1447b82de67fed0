"""karpathy/ng-video-lecture: a decoder alone, so its model is held to the laws of what follows the source."""

from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE, clone_of, definitions

REPOSITORY = "https://github.com/karpathy/ng-video-lecture"
COMMIT = "52201428ed7b46804849dea0b3ccf0de9df1a5c3"


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, h, dropout):
        super().__init__()
        sizes = {"vocab_size": tgt_vocab, "n_layer": N, "n_embd": d_model, "n_head": h, "dropout": dropout}
        text = (clone_of(__file__) / "gpt.py").read_text("utf-8")
        self.gpt = definitions(text, block_size=64, device="cpu", **sizes)["GPTLanguageModel"]()

    def forward(self, src, tgt):
        return self.gpt(tgt)[0]


make_model = LanguageModel
