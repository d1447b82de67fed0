"""Confine a process to a folder: by Landlock where Linux has it, and everywhere by Python's audit hooks."""

import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

CREATE, ADD_RULE, RESTRICT = 444, 445, 446  # system calls of landlock(7)
NO_NEW_PRIVILEGES = 38  # of prctl(2)
EXECUTE, READ_FILE, READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
READ = EXECUTE | READ_FILE | READ_FOLDER
SYSTEM = "/usr", "/lib", "/lib64", "/etc", "/opt", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system"
MAX_MEMORY, MAX_FILE = 4 << 30, 1 << 26  # bytes that a submission may take, and write into one file


def confine(folder: Path, hidden: list[Path], shown: Path | None = None) -> None:
    """Let this process and all that it starts read `folder` and what Python needs, and write `folder` alone.

    Nothing that is `hidden` can be read, unless it is `shown`. Other processes cannot be signaled.
    """
    if os.name == "posix":
        import resource

        for kind, limit in ((resource.RLIMIT_DATA, MAX_MEMORY), (resource.RLIMIT_FSIZE, MAX_FILE)):
            with suppress(ValueError, OSError):  # where less is allowed already
                resource.setrlimit(kind, (limit, limit))
    if landlock() > 0:
        restrict_paths(folder, [x.resolve() for x in hidden], shown)
    sys.addaudithook(audit_hook(folder))


def landlock() -> int:
    """Return the version of this system's Landlock, below 1 where there is none."""
    return int(ctypes.CDLL(None).syscall(CREATE, None, 0, 1)) if sys.platform == "linux" else 0


def restrict_paths(folder: Path, hidden: list[Path], shown: Path | None) -> None:
    """Let Landlock refuse this process all paths, except those that `confine` names."""
    system = ctypes.CDLL(None).syscall
    version = landlock()
    files = (1 << (13 + (version > 1) + (version > 2))) - 1 | (1 << 15 if version > 4 else 0)
    rules = struct.pack("QQQ", files, 3, 3)  # no connections; no signals to others (version 6)
    rules = rules[: 8 if version < 4 else 16 if version < 6 else 24]
    created = system(CREATE, rules, len(rules), 0)

    def allow(path: Path, access: int) -> None:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        if not path.is_dir():
            access &= READ_FILE | EXECUTE | 1 << 1
        system(ADD_RULE, created, 1, struct.pack("=Qi", access, opened), 0)
        os.close(opened)

    site = [x for x in sys.path if x.endswith("-packages")]
    for root in {*map(Path, (*SYSTEM, sys.prefix, sys.base_prefix, *site))}:
        for path, access in readable(root.resolve(), hidden):
            allow(path, access)
    allow(folder, files)
    if shown is not None:
        allow(shown, READ)
    for device in ("null", "urandom", "zero"):
        allow(Path("/dev", device), READ | 1 << 1)
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    system(RESTRICT, created, 0)
    refuse_calls()


# Numbers of system calls by which a process leaves a folder and a group, or talks to others.
REFUSED = {
    "x86_64": "29 41 42 49 53 90 91 92 93 94 101 109 112 188 189 190 197 198 199 240 260 268 310 311",
    "aarch64": "5 6 7 14 15 16 52 53 54 55 117 154 157 180 194 198 199 200 203 270 271",
}
IN_BOTH = "424 425 434 438 452 463 466"
MACHINES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}  # as auditing says; of seccomp itself
ALLOW, DENY, END = 0x7FFF0000, 0x00050001, 0x80000000  # what a filter answers: seccomp(2)


def refuse_calls() -> None:
    """Refuse sockets, io_uring, shared memory, ptrace, other groups, and changes of who may read a file."""
    name = os.uname().machine
    if name not in REFUSED:
        return
    machine, seccomp = MACHINES[name]
    numbers = [*map(int, f"{REFUSED[name]} {IN_BOTH}".split())]
    load, equal, least, answer = 0x20, 0x15, 0x35, 0x06
    lines = [(load, 0, 0, 4), (equal, 1, 0, machine), (answer, 0, 0, END), (load, 0, 0, 0)]
    lines.append((least, len(numbers) + 1, 0, 1 << 30))  # calls of a second kind
    lines += [(equal, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    lines += [(answer, 0, 0, ALLOW), (answer, 0, 0, DENY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
    ctypes.CDLL(None).syscall(seccomp, 1, 1, program)  # for all threads


def readable(path: Path, hidden: list[Path]) -> Iterator[tuple[Path, int]]:
    """Return the paths of a folder that hold nothing hidden, each with the access to it."""
    if path in hidden:
        return
    if not any(x.is_relative_to(path) for x in hidden):
        yield path, READ
        return
    yield path, READ_FOLDER
    for each in path.iterdir():
        yield from readable(each, hidden)


STARTS = re.compile(r"os\.(fork|kill|system|exec|posix_spawn|spawn|startfile)|subprocess|socket")
CHANGES = re.compile(r"os\.(re|rmdir|mk|trunc|.*link|chmod|chown|chflags|utime)|shutil")


def audit_hook(folder: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that refuses what starts processes, and what changes files outside a folder."""
    inside, real, null = os.path.join(os.path.realpath(folder), ""), os.path.realpath, os.devnull

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if STARTS.match(event):
            raise PermissionError(f"{event}: a graded file computes, and leaves other things alone")
        changes = CHANGES.match(event) is not None
        if event == "open":
            mode, flags = arguments[1:3]
            changes = bool(flags & (os.O_WRONLY | os.O_RDWR) if mode is None else {*mode} & {*"wax+"})
        for x in arguments if changes else ():
            is_path = isinstance(x, str | bytes | os.PathLike) and x != null
            if is_path and not os.path.join(real(os.fsdecode(x)), "").startswith(inside):
                raise PermissionError(f"{event} {os.fsdecode(x)}: it does not lie beside the graded file")

    return refuse
