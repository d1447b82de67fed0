"""How the clone's own environment serves notebooks; `make setup` copies this file to .venv/etc/jupyter."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

CLONE = Path(__file__).parents[3]
c = get_config()


def as_built(model: dict[str, Any], **_: object) -> None:
    """Save nothing that a kernel says of itself, and solutions folded: JupyterLab unfolds what it runs."""
    if model["type"] == "notebook":
        for cell in model["content"]["cells"]:
            if "solution" in cell["metadata"].get("tags", []):
                cell["metadata"]["collapsed"] = True
                cell["metadata"].setdefault("jupyter", {})["outputs_hidden"] = True
        metadata = model["content"]["metadata"]
        if metadata.get("kernelspec", {}).get("name") == "python3":
            metadata["kernelspec"]["display_name"] = "Python 3"
            metadata["language_info"] = {"name": "python"}


c.FileContentsManager.pre_save_hook = as_built
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")  # Jupyter sets it more than once

# The list of files names a lesson once: its source stays beside it, unlisted.
c.ContentsManager.hide_globs.extend([f"{path.stem}.py" for path in CLONE.glob("notebooks/**/*.ipynb")])
if Path.cwd().samefile(CLONE):
    c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"

# Terminals and `!` find the command `annotated`. A login shell would set the path anew.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
if os.name != "nt":
    c.ServerApp.terminado_settings = {"shell_command": [os.environ.get("SHELL", "sh")]}
