"""Execute a file as Python would, and leave nothing of it to the file that is checked next."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast

import torch

NOT_BESIDE = "annotated", "torch"  # packages that stay loaded, even if they lie in the folder of a file


@contextmanager
def as_script(path: Path, forget: bool = True) -> Iterator[None]:
    """Let code find the modules beside its file and a command line of its own, while it is loaded and called.

    Afterwards these modules are forgotten: the next file may have others of the same names. PyTorch's
    default type and random state are restored.
    """

    def leave(status: int) -> NoReturn:
        raise SystemExit(f"os._exit({status})")

    argv, folders, exit_, before = sys.argv, sys.path[:], os._exit, set(sys.modules)
    dtype = torch.get_default_dtype()
    folder = path.parent.absolute()
    root = root_of(folder)
    sys.argv, sys.path[:0], os._exit = [str(path)], [str(folder), str(root)], leave
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype if forget else torch.get_default_dtype())
        sys.argv, sys.path[:], os._exit = argv, folders, exit_
        for name in set(sys.modules) - before if forget else ():
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            beside = Path(file).is_relative_to(root) and "site-packages" not in file
            if beside and name.partition(".")[0] not in NOT_BESIDE:
                del sys.modules[name]


def root_of(folder: Path) -> Path:
    """Return the folder from which a file in this folder is imported: above its package, if it is in one."""
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


def load(path: Path, before: Mapping[str, Any] | None = None) -> ModuleType:
    """Execute a Python file as a module, with names `before`; in a package, as one of its modules."""
    folder = path.parent.absolute()
    packages = folder.relative_to(root_of(folder)).parts
    with as_script(path, forget=False):
        if packages:
            import_module(".".join(packages))
        loader = SourceFileLoader(".".join([*packages, f"checked_{path.stem}"]), str(path))
        module = module_from_spec(cast(Any, spec_from_loader(loader.name, loader)))
        sys.modules[loader.name] = module
        vars(module).update(before or {})
        loader.exec_module(module)
    return module
