"""The tables beside this file: what terms mean, what readers ask."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read_table(name: str) -> list[dict[str, Any]]:
    """The entries of `glossary.toml` or `questions.toml`."""
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    [entries] = tomllib.loads(text).values()
    return entries


def terms_in(notebook: str) -> list[str]:
    """The glossary's terms that this notebook shows."""
    return [entry["term"] for entry in read_table("glossary") if entry["notebook"] == notebook]


def terms_for(code: str) -> list[str]:
    """The glossary's terms that this name in code stands for."""
    return [entry["term"] for entry in read_table("glossary") if code in entry["code"]]
