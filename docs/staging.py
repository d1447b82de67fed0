"""The sources of the site, put together in one folder: pages, executed notebooks, scripts and fonts."""

import shutil
from pathlib import Path

from api_pages import write_api
from assets import copy_assets
from gallery import write_gallery
from notebook_pages import write_notebooks
from reference_pages import write_references
from start_page import write_start_page
from teaching import write_teaching


def stage(root: Path, folder: Path) -> None:
    """Make `folder` anew, with all that Sphinx is to read; `folder.parent` keeps what is slow to make."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "docs/pages", folder)
    shutil.copyfile(root / "docs/conf.py", folder / "conf.py")
    shutil.copytree(root / "docs/static", folder / "_static")
    shutil.copytree(root / "images", folder / "images", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copyfile(root / "images/card.png", folder / "_static/card.png")
    shutil.copyfile(root / "CHANGELOG.md", folder / "changelog.md")
    copy_assets(folder / "_static", folder.parent)
    write_notebooks(root, folder)
    write_gallery(root, folder)
    write_teaching(root, folder)
    write_api(folder / "api")
    write_references(root, folder)
    write_start_page(root, folder)
