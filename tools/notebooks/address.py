"""Where the project is: first cells and links to Colab and to the site, from the addresses in pyproject.toml.

    python tools/notebooks/address.py    put them into the notebooks, both files of each, and into the README

Nothing is executed: outputs stay. Exit code 1: a notebook is to be built first, because its two files differ.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from folds import INSTALL, TITLE, TITLES

# What is installed is a folder or an address of ours, never a name: an index would be asked for that.
FIRST_CELL = """\
import sys
from importlib.metadata import distributions
from pathlib import Path


class NotInstalledError(Exception):
    def _render_traceback_(self):  # the sentence alone
        return [str(self)]


if not any(distributions(name="annotated-transformer")):
    here = Path.cwd()
    clones = [str(at) for at in (here, *here.parents) if (at / "annotated/transformer").is_dir()]
    requirements = [f'-e "{{clone}}[{extras}]"' for clone in clones]
{otherwise}    if requirements:
        get_ipython().run_line_magic("pip", f"install -q {{requirements[0]}}")
    sys.path += clones  # where the next kernel looks by itself
if not any(distributions(name="annotated-transformer")):
    raise NotInstalledError(
        "This notebook needs the project that it belongs to: take all of it, not this file alone, "
        "run `make setup` in its folder, and open the notebook there with `make lab`."
    )"""
EXTRAS = re.compile(r"\[(colab[a-z,]*)\]")
GITHUB = "https://github.com/"
COLAB = "https://colab.research.google.com/github/"
LINK = "[Open in Colab]("
ONLINE = re.compile(r"(<!-- online -->\n).*?(<!-- end of online -->)", re.DOTALL)


def find_address(pyproject: Path, name: str) -> str:
    """What `[project.urls]` says under a name, or nothing where it is not said yet."""
    urls = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
    return urls.get(name, "")


def find_repository(pyproject: Path) -> str:
    """The address of the repository, or nothing."""
    return find_address(pyproject, "Repository").removesuffix("/").removesuffix(".git")


def first_cell(repository: str, extras: str = "colab") -> str:
    """The code that a notebook starts with: `extras` are what it needs beside the package."""
    source = f"'\"annotated-transformer[{extras}] @ git+{repository}\"'"
    otherwise = f"    requirements += [{source}]\n" if repository else ""
    return TITLES[INSTALL] + FIRST_CELL.format(extras=extras, otherwise=otherwise)


def colab_address(repository: str, name: str) -> str:
    """Where Colab opens a notebook; nothing for a repository elsewhere than at GitHub."""
    where = repository.removeprefix(GITHUB)
    return f"{COLAB}{where}/blob/main/notebooks/{name}.ipynb" if where != repository else ""


def with_link(title: str, repository: str, name: str) -> str:
    """A notebook's title cell with the link to Colab below the heading, if there is an address."""
    paragraphs = [text for text in title.split("\n\n") if not text.startswith(LINK)]
    if address := colab_address(repository, name):
        paragraphs.insert(1, f"{LINK}{address})")
    return "\n\n".join(paragraphs)


def with_address(source: str, repository: str, name: str) -> str:
    """The text of a `.py` with the link in its title and with the first cell of now; extras stay."""
    before, title, code, *rest = re.split(r"^(?=# %%)", source, flags=re.MULTILINE)
    marker, *lines = title.rstrip("\n").split("\n")
    words = with_link("\n".join(line.removeprefix("#")[1:] for line in lines), repository, name)
    title = "\n".join([marker, *(f"# {line}".rstrip() for line in words.split("\n"))])
    extras = EXTRAS.search(code)
    cell = TITLE.sub("", first_cell(repository, extras[1] if extras else "colab"))
    return "".join([before, title, "\n\n", f'# %% tags=["{INSTALL}"]\n{cell}\n\n', *rest])


def with_online(readme: str, repository: str, site: str, names: Mapping[str, Path]) -> str:
    """The README with links to the site and, for each notebook, to Colab between its two comments."""
    links = [
        f"[{name[:2]}]({colab_address(repository, name)})"
        for name in names
        if colab_address(repository, name) and name[:2].isdigit()
    ]
    book = f"{site.removesuffix('/')}/annotated.pdf"
    lines = [f"Read all of it as [a website]({site}) or as [a book]({book})."] if site else []
    lines += [f"Open in Colab: {' · '.join(links)}"] if links else []
    text = "\n\n".join(lines) + "\n" if lines else ""
    return ONLINE.sub(lambda found: found[1] + text + found[2], readme)


def write_all(root: Path) -> int:
    """Put the address into README and notebooks; 1 if a notebook has to be built first."""
    from build import refresh
    from pairs import find_sources, find_translations

    repository = find_repository(root / "pyproject.toml")
    sources = find_sources(root / "notebooks") | find_translations(root / "notebooks")
    readme = root / "README.md"
    site = find_address(root / "pyproject.toml", "Documentation")
    text = with_online(readme.read_text(encoding="utf-8"), repository, site, sources)
    readme.write_text(text, encoding="utf-8", newline="\n")
    for name, path in sources.items():
        before = path.read_text(encoding="utf-8")
        path.write_text(with_address(before, repository, name), encoding="utf-8", newline="\n")
        if not refresh(path):
            path.write_text(before, encoding="utf-8", newline="\n")
            print(f"{name}: its two files differ: make notebooks ONLY={name}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(write_all(Path(__file__).resolve().parents[2]))
