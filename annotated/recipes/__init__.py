"""Results that can be reproduced, each described in one TOML file here: how to train, what to score.

    annotated reproduce multi30k-en-de-lc

The table [train] holds settings as `annotated train --config` takes them, [evaluate] how to search and which
splits to score, and [card] what the model's card says besides the figures.
"""

from importlib import resources
from pathlib import Path


def recipe_names() -> list[str]:
    """The names of all recipes."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def recipe_path(name: str) -> Path:
    """The file of a recipe, by its name. Raises ValueError that lists the names."""
    if name not in recipe_names():
        raise ValueError(f"{name!r} is not the name of a recipe; they are: {', '.join(recipe_names())}")
    return Path(str(resources.files(__name__) / f"{name}.toml"))
