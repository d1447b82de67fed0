"""Variants of the model that the user brings: a Python file that registers them with `@variant`."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import extract_tb


def register_variants(path: Path) -> None:
    """Execute a Python file, which the user has named by hand: no model and no file of settings can.

    It may import what lies beside it. Raises FileNotFoundError, or ValueError with the line that failed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"--variants {path}: there is no such file")
    name = f"variants.{path.stem}"  # not the stem alone, because the file may be called torch.py
    loader = SourceFileLoader(name, str(path))
    module = sys.modules[name] = module_from_spec(spec_from_loader(name, loader))
    sys.path.append(str(path.parent.absolute()))
    try:
        loader.exec_module(module)
    except Exception as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = lines[-1] if lines else getattr(error, "lineno", 1)  # a syntax error has its own
        raise ValueError(f"--variants {path}, line {line}: {type(error).__name__}: {error}") from error
