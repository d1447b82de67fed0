"""The Annotated Transformer, the version of 2022."""

from tools.audit import clone_of, definitions

REPOSITORY = "https://github.com/harvardnlp/annotated-transformer"
COMMIT = "debc9fd747bb2123160a98046ad1c2d4da44a567"

script = clone_of(__file__) / "the_annotated_transformer.py"
globals().update({k: v for k, v in definitions(script.read_text(encoding="utf-8")).items() if k[0] != "_"})
