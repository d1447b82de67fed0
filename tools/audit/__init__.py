"""Hold public implementations to the laws of `annotated check`."""

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

# Laws that a language model, which reads no source, is not held to.
DECODER_ALONE = dict.fromkeys(
    ("model: source padding", "model: memory", "model: residuals and norms", "model: order of words"),
    "a decoder alone reads no source",
)


def definitions(source: str, **names: Any) -> dict[str, Any]:
    """Execute the imports, functions and classes of a script, and nothing else of it, among other names.

    An import that fails is passed over: "The Annotated Transformer" imports plots and corpora too.
    """
    names |= {"__name__": "audited"}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            with suppress(ImportError, AttributeError):
                exec(compile(ast.Module([node], []), "<audited>", "exec"), names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            with suppress(NameError, AttributeError):  # of a base class or a default value that is not there
                exec(compile(ast.Module([node], []), "<audited>", "exec"), names)
    return names


def clone_of(adapter: str) -> Path:
    """Return the folder in which the code that an adapter is for was cloned."""
    return Path("build/audit") / Path(adapter).stem
