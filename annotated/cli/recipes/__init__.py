"""Results that can be reproduced, each described in one TOML file here: how to train, what to score.

    annotated reproduce multi30k-en-de-lc

The table [train] holds settings as `annotated train --config` takes them, [evaluate] how to search, as
`annotated evaluate --config` takes it, and [card] which splits the model's card shows the scores of, and what
it says besides the figures.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from annotated.cli.flags import within
from annotated.files import read_toml, settings_from_json
from annotated.search.limits import MAX_BEAM, Penalty, check_search
from annotated.transformer.config import setting

FOLDER = Path(__file__).parent
TABLES = ("train", "evaluate", "card")


@dataclass(frozen=True)
class Search:
    """Says how to search: the flags of `translate` and `evaluate`, and the table [evaluate].

    Raises ValueError for settings with which no search could be made.
    """

    beam: int = setting(4, "hypotheses kept at each step; 1 searches greedily", type=within(1, MAX_BEAM))
    alpha: float = setting(0.6, "exponent of the length penalty; 0 for none", type=within(0, 10, float))
    penalty: Penalty = setting(
        "gnmt", "length penalty: ((5 + length) / 6)^alpha (gnmt, section 6.1), or length^alpha (power)"
    )

    def __post_init__(self) -> None:
        check_search(self.beam, 1, self.alpha)


@dataclass(frozen=True)
class Published:
    """Holds the table [card.published]: a figure of others, and which of ours stands beside it."""

    what: str  # whose figure
    split: str
    score: Literal["bleu", "tokenized_bleu"]
    value: float


@dataclass(frozen=True)
class Card:
    """Holds the table [card]: what a model's card says besides the figures, and which figures."""

    summary: str
    data: str
    failures: list[str]
    splits: list[str]
    published: Published | None = None
    remark: str = ""  # on the scores

    def __post_init__(self) -> None:
        for name in ("failures", "splits"):
            found = getattr(self, name)
            if not found or not all(isinstance(text, str) for text in found):
                raise ValueError(f"{name} must be one or more texts, not {found}")
        if self.published and self.published.split not in self.splits:
            known = ", ".join(self.splits)
            raise ValueError(f"published.split must be one of splits ({known}), not {self.published.split!r}")


@dataclass(frozen=True)
class Recipe:
    """Holds a recipe's tables."""

    train: dict[str, Any]
    evaluate: Search
    card: Card


def read_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises FileNotFoundError, or ValueError naming the file and what is wrong with it."""
    tables = read_toml(path)
    for name in [*tables, *TABLES]:
        if name not in TABLES or not isinstance(tables.get(name, {}), dict):
            raise ValueError(f"{path}: {name!r} is no table of a recipe; those are {', '.join(TABLES)}")
        if name not in tables:
            raise ValueError(f"{path}: the table [{name}] is missing")
    card = dict(tables["card"])
    if isinstance(card.get("published"), dict):
        card["published"] = settings_from_json(Published, card["published"], f"{path}, [card.published]")
    return Recipe(
        tables["train"],
        settings_from_json(Search, tables["evaluate"], f"{path}, [evaluate]"),
        settings_from_json(Card, card, f"{path}, [card]"),
    )


def recipe_names() -> list[str]:
    """List the names of all recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def recipe_path(name: str) -> Path:
    """Find the file of a recipe by its name. Raises ValueError that lists the names."""
    if name not in recipe_names():
        raise ValueError(f"{name!r} is not the name of a recipe; they are: {', '.join(recipe_names())}")
    return FOLDER / f"{name}.toml"
