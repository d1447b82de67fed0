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
from json.encoder import encode_basestring_ascii
from pathlib import Path
from tempfile import TemporaryDirectory

CHILD = "import sys; sys.path[:] = sys.argv[1:]; from apart import answer; answer()"
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "SYSTEMROOT", "TEMP", "USERPROFILE", "ANNOTATED_DATA")
LONGEST = 100_000  # characters of what comes back


def call_apart(function: Callable[[str], str], job: str, seconds: float) -> str:
    """Call a module's function in a process of its own, and return what it returns.

    The process has a clean environment and an empty folder; with it, those that it started end.

    Raises:
        TimeoutError: the function had not returned in time.
        ChildProcessError: the process ended without its return.
    """
    token = secrets.token_hex()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder, "said")
        asked = [token, str(place), function.__module__, function.__name__, job]
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
            process.communicate(json.dumps(asked).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"still running after {seconds:g} seconds") from None
        finally:
            with suppress(AttributeError, ProcessLookupError, PermissionError):  # Windows has no groups
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        with suppress(OSError, ValueError, TypeError):
            if place.is_file() and place.stat().st_size < 10 * LONGEST:
                told, said = json.loads(place.read_bytes())
                if told == token:
                    return str(said)
        raise ChildProcessError(f"the process ended by itself, with exit code {process.returncode}")


def answer() -> None:
    """Do in the process what `call_apart` asks; what is needed to say the result is at hand before."""
    token, place, module, name, job = json.load(sys.stdin)
    function, quoted, write = getattr(import_module(module), name), encode_basestring_ascii, os.write
    file = os.open(place, os.O_WRONLY | os.O_CREAT)
    said = function(job)
    write(file, f"[{quoted(token)}, {quoted(said[:LONGEST])}]".encode())
