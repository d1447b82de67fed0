"""Results that can be reproduced, each described in one TOML file here: `annotated reproduce NAME`.

The table [train] holds settings as `annotated train --config` takes them, [evaluate] those of the search, as
`annotated evaluate --config` takes them, and [card] the splits to score, and the words of the model's card.
"""

from pathlib import Path

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """List the names of all recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def recipe_path(name: str) -> Path:
    """Return the file of a recipe. Raises ValueError that lists the names."""
    if name not in recipe_names():
        raise ValueError(f"{name!r} is not the name of a recipe; they are: {', '.join(recipe_names())}")
    return FOLDER / f"{name}.toml"
