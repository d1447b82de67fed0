"""See inside a translator: a page in which a sentence goes through the model, number by number.

The page's script, `watch.js`, holds the same Transformer once more, in TypeScript, made from tools/watch.
"""

import base64
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch

from annotated.plots.pages import check_settings
from annotated.plots.web_page import document, framed, json_in_script
from annotated.translation.storage.model_folder import named_state
from annotated.translation.tokenizers import SentencePieceTokenizer, normalize
from annotated.translation.translator import Translator

if TYPE_CHECKING:
    from IPython.display import HTML

__all__ = ["model_script", "page", "page_model", "script", "watch"]

MAX_PARAMETERS = 20_000_000  # of the largest model that a page shows; the page then has about 55 MB


def page_model(translator: Translator) -> dict[str, Any]:
    """Return what the page needs of a translator: settings, pieces, weights in half precision as base64.

    Raises ValueError for a model that the page cannot run, or that is too large for a page.
    """
    config, tokenizer = translator.model.config, translator.src_tokenizer
    check_settings(config)
    if tokenizer is not translator.tgt_tokenizer or not isinstance(tokenizer, SentencePieceTokenizer):
        raise ValueError("the page's model needs one SentencePiece vocabulary for both languages")
    if translator.tokenized:
        raise ValueError("the page's model needs normal text; this one reads it lower-cased and tokenized")
    tensors = {name: tensor.detach().cpu() for name, tensor in named_state(translator.model).items()}
    packed = torch.cat([tensor.flatten() for tensor in tensors.values()]).half()
    if len(packed) > MAX_PARAMETERS:
        raise ValueError(f"the page's model has at most {MAX_PARAMETERS:,} parameters, not {len(packed):,}")
    if not packed.isfinite().all():
        raise ValueError("the page's model needs weights that half precision can hold, up to 65504")
    return {
        "N": config.N,
        "h": config.h,
        "d_model": config.d_model,
        "eps": config.layer_norm_eps,
        "forbidden": list(translator.forbidden),
        "pieces": tokenizer.scored_pieces(),
        "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()},
        "weights": base64.b64encode(packed.numpy().tobytes()).decode("ascii"),
    }


DESCRIPTION = "Watch your own sentence go through a real Transformer, number by number."
TOP = """
<header class="top">{home}<h1>See inside</h1>
<p>A real Transformer translates your sentence here, and shows every number on the way.</p></header>"""


def page(scripts: str, home: str = "", head: str = "", **data: str) -> str:
    """Return the page as HTML: `data` are its settings, the rest are elements.

    `scripts` are those that run it, `home` is a link back, `head` what else the page's head holds.
    """
    head = f'\n<meta name="description" content="{DESCRIPTION}">{head}'
    return document("See inside a Transformer", "watch", data, scripts, head, TOP.format(home=home))


def script() -> str:
    """Return the page's script. It needs `window.model`, or the address of a script that sets it."""
    return resources.files(__name__).joinpath("watch.js").read_text(encoding="utf-8")


def model_script(translator: Translator) -> str:
    """Return a script that leaves `page_model(translator)` in `window.model`. Raises as `page_model` does."""
    return f"window.model = {json_in_script(page_model(translator))};\n"


def watch(translator: Translator, sentence: str = "A dog runs.", height: int = 900) -> "HTML":
    """Show a sentence going through a translator, in Jupyter or Colab; nothing is fetched.

    The model itself is put into the output, 3 bytes a parameter. `height` is in pixels.
    Raises ValueError for a model that the page cannot run (see `page_model`), ImportError without IPython.
    """
    scripts = f"<script>{model_script(translator)}</script><script>{script()}</script>"
    fallback = "Run this cell: it shows the sentence on its way through the model."
    return framed(page(scripts, sentence=normalize(sentence)), "See inside", fallback, height)
