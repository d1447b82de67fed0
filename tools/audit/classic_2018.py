"""The Annotated Transformer, the version of 2018."""

import json

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/harvardnlp/annotated-transformer"
COMMIT = "07dd30a93ac0c6b623bb84b68c5305d3f380204f"

notebook = json.loads((clone_of(__file__) / "The Annotated Transformer.ipynb").read_text(encoding="utf-8"))
code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
script = "\n".join(line for line in code.splitlines() if not line.startswith(("!", "%")))
globals().update({k: v for k, v in definitions(script).items() if k[0] != "_"})
