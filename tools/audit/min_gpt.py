"""karpathy/minGPT: a decoder alone, so its model is held to the laws of what follows the source."""

from mingpt.model import GPT
from torch import nn

from tools.audit import DECODER_ALONE as NOT_APPLICABLE

REPOSITORY = "https://github.com/karpathy/minGPT"
COMMIT = "37baab71b9abea1b76ab957409a1cc2fbfba8a26"


class LanguageModel(nn.Module):
    """A language model in the place of a translation model, whose source it does not read."""

    def __init__(self, tgt_vocab, N, d_model, h, dropout):
        super().__init__()
        config = GPT.get_default_config()
        config.merge_from_dict({"model_type": None, "n_layer": N, "n_head": h, "n_embd": d_model})
        config.merge_from_dict({"vocab_size": tgt_vocab, "block_size": 64})
        config.merge_from_dict(dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), dropout))
        self.gpt = GPT(config)

    def forward(self, src, tgt):
        return self.gpt(tgt)[0]


make_model = LanguageModel
