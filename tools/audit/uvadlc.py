"""phlippe/uvadlc_notebooks, the tutorial on Transformers: an encoder, held to the laws of its parts."""

import json

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/phlippe/uvadlc_notebooks"
COMMIT = "0da8037c7abc32f478ff6142acceb72dbcf088ee"
FOLDER = "docs/tutorial_notebooks/tutorial6"

notebook = json.loads((clone_of(__file__) / FOLDER / "Transformers_and_MHAttention.ipynb").read_text("utf-8"))
texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
lines = [line for text in texts for line in text.splitlines() if not line.strip().startswith(("%", "!"))]
theirs = definitions("\n".join(lines))
PositionalEncoding = theirs["PositionalEncoding"]


def attention(query, key, value, mask=None):
    return theirs["scaled_dot_product"](query, key, value, mask)
