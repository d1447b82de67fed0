"""What a graded file gets of the modules that it imports: copies of what computes, and stand-ins."""

import enum
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

GIVEN = tomllib.loads(Path(__file__).with_name("given.toml").read_text(encoding="utf-8"))


def given(name: str, patterns: str) -> bool:
    """Tell whether the last pattern that fits a name has no minus."""
    fits = [p for p in patterns.split() if fnmatchcase(name, p.removeprefix("-"))]
    return bool(fits) and fits[-1][0] != "-"


class Copy(ModuleType):
    """A module with those names of another's that are given; the rest are stand-ins."""

    def __init__(self, name: str, more: Mapping[str, Any]):
        super().__init__(name)
        real = import_module(name)
        spelled = [n for n in getattr(real, "__all__", None) or dir(real) if not n.startswith("_")]
        names = {n: getattr(real, n) for n in spelled if given(n, GIVEN["modules"][name])}
        names = {n: x for n, x in names.items() if not isinstance(x, ModuleType)} | more.get(name, {})
        vars(self).update(names, __all__=[*names], __version__=getattr(real, "__version__", ""))
        for inner in GIVEN["modules"]:
            parent, _, last = inner.rpartition(".")
            if parent == name:
                vars(self)[last] = Copy(inner, more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(sys.modules[self.__name__], name):
            raise AttributeError(f"module {self.__name__} has no attribute {name}")
        return absent(f"{self.__name__}.{name}")


class Absent:
    """What stands for something that a graded file does not get: it does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return absent(f"{type(self).__name__.partition(' ')[0]}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Do nothing, or give a function, class or module back, as a decorator does."""
        first = arguments[0] if arguments else self
        return first if callable(first) else self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, key: Any) -> Any:
        return self

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def __truediv__(self, other: Any) -> Any:  # as of paths
        return self

    def __fspath__(self) -> str:
        return type(self).__name__

    def __format__(self, how: str) -> str:
        return ""

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def __mro_entries__(self, bases: Any) -> tuple[()]:
        return ()


def absent(name: str) -> Any:
    """Return a stand-in: the name of its class, which errors show, says what it stands for."""
    told = f"{name} (which a graded file does not get, unless by --allow {name.partition('.')[0]})"
    return type(told, (Absent,), {})()


class Kinds(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, type)

    def __getitem__(cls, x: Any) -> Any:
        return type[x]


class Kind(metaclass=Kinds):
    """What `type` is to a graded file: it tells a class, unless a class of this package or of classes."""

    def __new__(cls, x: object) -> Any:
        return Kind if isinstance(x, type) or of_grader(type(x)) else type(x)


def of_grader(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "annotated" and kind not in (Kind, Enum)


class Members(enum.EnumMeta):
    def __call__(cls, value: Any) -> Any:  # type: ignore[override]
        """Find a member: without a `class` statement, no class is made."""
        return super().__call__(value)


class Enum(enum.Enum, metaclass=Members): ...


def plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, of which a copy is itself: a copy of a method takes a copy of its object along."""
    return lambda *arguments, **named: method(*arguments, **named)


class Attributes(dict[str, Any]):
    """The public attributes of an object, which change with it."""

    def __init__(self, change: Callable[[Any, str, Any], None], x: Any):
        super().__init__({name: value for name, value in vars(x).items() if not name.startswith("_")})
        self.set = plain(lambda name, value: change(x, name, value))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set(name, value)
        super().__setitem__(name, value)

    def update(self, *more: Any, **named: Any) -> None:
        for name, value in dict(*more, **named).items():
            self[name] = value
