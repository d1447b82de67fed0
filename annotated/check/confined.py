"""Execute a graded file so that it computes, and reaches nothing else.

It gets the modules and builtins of `given.toml`. Each attribute that it names is watched: none leads to the
interpreter's insides or to what others keep for themselves, and only what is its own can be changed.
"""

import builtins
import copy
import dataclasses
import functools
import io
import sys
from collections.abc import Callable, Collection
from importlib.machinery import FileFinder, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    ModuleType,
    TracebackType,
)
from typing import Any

import torch

from annotated.check.given import GIVEN, Absent, Attributes, Copy, Enum, Kind, absent, given, of_grader, plain
from annotated.check.reading import Refused, is_special, read, refuse, sayable

INSIDES = FrameType, CodeType, TracebackType, ModuleType, type, dict


class Confinement:
    """A folder whose files are executed confined; of the modules in `allow` they get the real ones."""

    def __init__(self, folder: Path, allow: Collection[str] = ()):
        self.folder, self.allow = folder.resolve(), allow
        self.modules = set[str]()  # of the folder
        self.copies = dict[str, Any]()
        self.more = {"dataclasses": {"dataclass": plain(self.dataclass)}, "enum": {"Enum": Enum}}
        self.more["functools"] = {"wraps": plain(self.wraps)}
        self.more["copy"] = {"deepcopy": lambda x: copy.deepcopy(x)}  # not what it remembers
        self.more["os"] = {"environ": {}, "getenv": lambda name, default=None: default}
        names = {n: x for n, x in vars(builtins).items() if given(n, GIVEN["names"]["builtins"])}
        own = self.getattr, self.hasattr, self.setattr, self.delattr, self.vars, self.open
        names |= {f.__name__: plain(f) for f in own} | {"type": Kind, "__name__": "builtins"}
        names |= {
            f"@{f.__name__}": f for f in (self.seen, self.spread, self.private, self.writable, self.vars)
        }
        names |= {"__import__": self.find, "__build_class__": self.build_class, "__builtins__": None}
        outer = self

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                path = self.get_filename(fullname)
                tree: Any = read(self.get_data(path), path)
                return compile(tree, path, "exec", dont_inherit=True)

            def exec_module(self, module: ModuleType) -> None:
                outer.modules.add(module.__name__)
                vars(module)["__builtins__"] = names
                super().exec_module(module)

        self.loader = Loader

    def enter(self) -> type[SourceFileLoader]:
        """Confine what this process imports from the folder from now on. Return what loads a file of it."""
        finder = FileFinder.path_hook((self.loader, [".py"]))

        def hook(path: str) -> Any:
            if not self.is_inside(path):
                raise ImportError
            return finder(path)

        sys.path_hooks.insert(0, hook)
        sys.dont_write_bytecode = True
        return self.loader

    def is_inside(self, path: str) -> bool:
        return Path(path).resolve().is_relative_to(self.folder)

    def find(self, name: str, names: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """Import what lies in the folder or is allowed; of other modules, a copy or a stand-in."""
        top, *rest = name.split(".")
        beside = level or PathFinder.find_spec(top, [*filter(self.is_inside, sys.path)])
        if beside or top in self.allow:
            module = builtins.__import__(name, names, local, wanted, level)
            folders = getattr(module, "__path__", ()) if not getattr(module, "__file__", None) else ()
            mine = self.owns(module) or (folders and all(map(self.is_inside, folders)))
            if not (mine or top in self.allow):
                raise ImportError(f"{name} is the name of another module, too: rename the file")
        else:
            module = whole = self.copy(top)
            for part in rest:
                if not hasattr(module, part):
                    setattr(module, part, absent(name))
                module = getattr(module, part)
            module = module if wanted else whole
        for one in wanted or ():
            if one != "*" and not hasattr(module, one):
                raise ImportError(f"cannot import name '{one}' from '{name}'")
        return module

    def copy(self, name: str) -> Any:
        if name == "annotated":
            raise ImportError("a submission is one's own work: it does not import annotated")
        if name not in self.copies and name not in GIVEN["modules"]:
            if find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named '{name}'", name=name)
            self.copies[name] = absent(name)
        elif name not in self.copies:
            self.copies[name] = Copy(name, self.more)
        return self.copies[name]

    # ---- attributes

    def owns(self, x: Any) -> bool:
        """Tell whether something was made by the folder's files."""
        if isinstance(x, ModuleType):
            return x.__name__ in self.modules
        x = getattr(x, "__thisclass__", x) if isinstance(x, super) else x
        return (x if isinstance(x, type | FunctionType) else type(x)).__module__ in self.modules

    def seen(self, x: Any) -> Any:
        """Return what an attribute is, or a call has given, unless it is of the insides."""
        if isinstance(x, INSIDES):
            known = isinstance(x, type) and not issubclass(x, type) and not of_grader(x)
            if isinstance(x, dict):
                known = not dict.__contains__(x, "__builtins__")  # the names of a module
            elif isinstance(x, ModuleType):
                known = type(x) is Copy or self.owns(x) or x.__name__.partition(".")[0] in self.allow
            if not known:
                raise Refused(f"a graded file has no use for a {type(x).__name__}")
        return x

    def spread(self, x: Any, count: int) -> Any:
        """Return what is assigned to so many names: a stand-in has none, and is given to each."""
        return (x,) * count if isinstance(x, Absent) else x

    def private(self, x: Any, name: str) -> Any:
        """Return what has an attribute with an underscore before it, if others may see that."""
        whole = name in ("__dict__", "__getattr__")
        whole |= name == "__init__" and not isinstance(x, type | super)
        shown = (is_special(name) and not whole) or name in ("_asdict", "_fields", "_replace")
        if not shown and (not self.owns(x) or (whole and isinstance(x, type | ModuleType | FunctionType))):
            raise Refused(f"`{name}` of a {type(x).__name__} is not the graded file's own")
        return x

    def writable(self, x: Any) -> Any:
        """Return what an attribute is set of, unless others use it, too."""
        real = getattr(x, "__origin__", x)  # of what `typing` stands for
        fixed = (
            type,
            ModuleType,
            FunctionType,
            BuiltinFunctionType,
            dataclasses.Field,
            functools.cached_property,
        )
        shared = isinstance(real, fixed)
        if shared and not (self.owns(x) or type(x) is Copy):
            raise Refused(f"a graded file does not change {getattr(x, '__name__', x)}")
        return x

    # ---- builtins, and functions that set attributes

    def named(self, x: Any, name: Any, reads: bool = True) -> Any:
        if type(name) is not str or not name.isidentifier() or not sayable(name, reads):
            refuse(name)
        x = self.private(x, name) if name.startswith("_") else x
        return x if reads else self.writable(x)

    def getattr(self, x: Any, name: str, *default: Any) -> Any:
        try:
            return self.seen(getattr(self.named(x, name), name))
        except AttributeError:
            if default:
                return default[0]
            raise

    def hasattr(self, x: Any, name: str) -> bool:
        nothing = object()
        return self.getattr(x, name, nothing) is not nothing

    def setattr(self, x: Any, name: str, value: Any) -> None:
        setattr(self.named(x, name, reads=False), name, value)

    def delattr(self, x: Any, name: str) -> None:
        delattr(self.named(x, name, reads=False), name)

    def vars(self, x: Any) -> "Attributes":
        return Attributes(self.setattr, self.private(x, "__dict__"))

    def dataclass(self, cls: Any = None, /, **options: Any) -> Any:
        return dataclasses.dataclass(cls and self.writable(cls), **options)

    def wraps(self, wrapped: Any) -> Callable[[Any], Any]:
        def mark(f: Any) -> Any:
            return functools.update_wrapper(f, wrapped) if isinstance(f, FunctionType) and self.owns(f) else f

        return mark

    def open(self, file: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
        """Read a file that lies beside; what is written goes nowhere."""
        path, stream = Path(str(file)).resolve(), io.BytesIO if "b" in mode else io.StringIO
        if {*mode} & {*"wax+"}:
            return stream()
        if not path.is_relative_to(self.folder):
            raise Refused("a graded file reads what lies beside it")
        data: Any = path.read_bytes()
        return stream(data if "b" in mode else data.decode())

    def build_class(self, body: Callable[..., Any], name: str, *bases: Any, **options: Any) -> Any:
        options = {} if any(isinstance(base, Absent) for base in bases) else options
        made = builtins.__build_class__(body, name, *bases, **options)
        if not isinstance(made, type) or issubclass(made, torch.Tensor | int | float | type):
            raise Refused(f"class {name}: a graded file has no tensors, numbers or types of its own kind")
        if {"__eq__", "__hash__"} & {*vars(made)} and issubclass(made, torch.nn.Module | str | bytes):
            raise Refused(f"class {name}: modules and texts of a graded file are not equal by its own rule")
        if look := vars(made).get("__getattr__"):  # C asks by it for what passes for memory
            made.__getattr__ = lambda x, name: look(x, name if not is_special(name) else refuse(name))  # type: ignore[attr-defined]
        return made
