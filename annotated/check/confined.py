"""Execute a graded file so that it computes, and reaches nothing else.

It gets the modules and builtins of `given.toml`. Each attribute that it names is watched: none leads to the
interpreter's insides or to what others keep for themselves, and only what is its own can be changed.
"""

import ast
import builtins
import copy
import dataclasses
import functools
import io
import sys
from collections.abc import Callable, Collection, Iterator
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

NAMES = {key: names.split() for key, names in GIVEN["names"].items()}
INSIDES = FrameType, CodeType, TracebackType, ModuleType, type, dict


class Refused(AttributeError):  # noqa: N818 (it is the file's error)
    """A graded file does what no part of a Transformer needs."""


def refuse(name: str) -> Any:
    raise Refused(f"a graded file does not use `{name}`")


# ---- what a file says


def read(source: bytes, path: str) -> ast.AST:
    """Parse a file, and watch its attributes. Raises Refused for what a file may not say."""
    tree = ast.parse(source, path)
    mains = [n for n in tree.body if isinstance(n, ast.If) and "id='__name__'" in ast.dump(n.test)]
    for main in mains:  # what stands there is not executed
        main.body = [ast.copy_location(ast.Pass(), main)]
    methods = [f for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for f in node.body]
    for node in ast.walk(tree):
        for said in unsayable(node):
            if said == "__getattr__" and node in methods:  # not a module's
                continue
            raise Refused(f"line {getattr(node, 'lineno', 1)}: a graded file does not use `{said}`")
    return ast.fix_missing_locations(Watch().visit(tree))


def unsayable(node: ast.AST) -> Iterator[str]:
    """Return the names in a node that a file may not use, and `case` where a pattern looks into objects."""
    looks = isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_patterns)
    if looks or (isinstance(node, ast.pattern) and any(isinstance(x, ast.Attribute) for x in ast.walk(node))):
        yield "case"
    if isinstance(node, ast.Name) and node.id == "__class__":  # in its body, before the class is looked at
        yield "__class__"
    reads = isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
    fields = [] if isinstance(node, ast.Constant) else [value for _, value in ast.iter_fields(node)]
    for value in fields:
        for name in value if isinstance(value, list) else [value]:
            for part in name.split(".") if isinstance(name, str) else ():  # of a module
                if not sayable(part, reads, isinstance(node, ast.Attribute)):
                    yield part


def sayable(name: str, reads: bool, of_object: bool = True) -> bool:
    if is_special(name):
        return name in NAMES["read" if reads else "defined"]
    return not of_object or name not in NAMES["refused"]


def is_special(name: str) -> bool:
    return name[:2] == name[-2:] == "__"


class Watch(ast.NodeTransformer):
    """Lead attributes and results through functions of `Confinement`, by names that no file can spell."""

    def through(self, name: str, node: Any, *more: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(f"@{name}", ast.Load()), [node, *more], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call):
            node.value = self.through("spread", node.value, ast.Constant(len(node.targets[0].elts)))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return self.through("seen", node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "__dict__":
            return self.through("vars", node.value)
        if node.attr.startswith("_"):
            node.value = self.through("private", node.value, ast.Constant(node.attr))
        if not isinstance(node.ctx, ast.Load):
            node.value = self.through("writable", node.value)
            return node
        return self.through("seen", node)


# ---- what it gets


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
