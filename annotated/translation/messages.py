"""Messages to the user, from one of a run's processes."""

import sys
import warnings

from tqdm import tqdm

from annotated.translation.processes import is_first


def silent() -> bool:
    """Return whether this process prints nothing."""
    return not is_first() or sys.stderr is None or sys.stderr.closed


def print_message(text: str) -> None:
    """Print a message, from the first process only, without breaking a progress bar.

    It goes to standard error, but in a notebook, which would show that as an error, to standard output.
    """
    if not silent():
        notebook = hasattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel")
        file = sys.stdout if notebook else sys.stderr
        encoding = getattr(file, "encoding", None) or "utf-8"
        tqdm.write(text.encode(encoding, "backslashreplace").decode(encoding), file=file)


def warn(message: str) -> None:
    """Warn the user, each time: `warnings.warn` would show the same words of another text only once."""
    warnings.warn_explicit(message, UserWarning, filename="annotated", lineno=1)
