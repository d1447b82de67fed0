"""A model of a few hundred weights, for the tests of model folders."""

import torch

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import CONFIG
from annotated.translation.tokenizers import WordTokenizer

WORDS = WordTokenizer(["a", "b"], None)


def make(src=("a", "b"), tgt=("a", "b"), **settings):
    torch.manual_seed(0)
    shape = {"N": 1, "d_model": 8, "d_ff": 8, "h": 2, **settings}
    return EncoderDecoder.from_config(TransformerConfig.base(4 + len(src), 4 + len(tgt), **shape))


def change(folder, **values):
    """Change settings in a folder's config.json."""
    settings = read_json(folder / CONFIG)
    write_json(folder / CONFIG, {**settings, "model": {**settings["model"], **values}})
