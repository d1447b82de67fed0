"""Call a function in a process of its own, for code that may do anything but answer.

It is no sandbox: the process may read and write what its user may. What is held is that only the function's
own return counts, that nothing the process prints is seen, and that nothing of it goes on running.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CHILD = "import sys; sys.path[:] = sys.argv[1:]; from annotated.check.apart import answer; answer()"
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "SYSTEMROOT", "TEMP", "USERPROFILE", "ANNOTATED_DATA")
LONGEST = 1_000_000  # bytes of an answer


def call_apart(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """Call a module's function in a process of its own; arguments and result travel as JSON.

    The process has a clean environment and an empty folder; with it, those that it started end.

    Raises:
        TimeoutError: the function had not returned in time.
        ChildProcessError: the process ended without its return.
    """
    token = secrets.token_hex()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder, token)
        job = [token, str(place), function.__module__, function.__name__, arguments]
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", CHILD, *(os.path.abspath(each) for each in sys.path if each)],
            cwd=folder,
            env={name: os.environ[name] for name in KEPT if name in os.environ} | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(job).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {seconds:g} seconds") from None
        finally:
            with suppress(AttributeError, ProcessLookupError, PermissionError):  # Windows has no groups
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        with suppress(OSError, ValueError, TypeError):
            if place.is_file() and place.stat().st_size < LONGEST:
                told, said = json.loads(place.read_bytes())
                if told == token:
                    return said
        raise ChildProcessError(f"the process ended by itself, with exit code {process.returncode}")


def answer() -> None:
    """Do in the process what `call_apart` asks."""
    token, place, module, name, arguments = json.load(sys.stdin)
    said = json.dumps([token, getattr(import_module(module), name)(*arguments)])
    Path(place).write_text(said, encoding="utf-8")
