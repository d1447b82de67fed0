"""What a page says of itself where its link is shared: title, a sentence, a picture."""

import html
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx

CARD = "_static/card.png"


def add_card(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document) -> None:
    """Add description and card to a page's head. With `html_baseurl` the card is found from afar."""
    if tree is None:  # a page that Sphinx makes itself, such as the index of names
        return
    first = next(iter(tree.findall(nodes.paragraph)), None)
    text = " ".join(first.astext().split()) if first else app.config.project
    card = urljoin(app.config.html_baseurl, CARD) if app.config.html_baseurl else context["pathto"](CARD, 1)
    for name, value in (("name", "description"), ("property", "og:description")):
        context["metatags"] += meta(name, value, text)
    for value, content in {
        "og:title": context["title"],
        "og:type": "article",
        "og:image": card,
        "twitter:card": "summary_large_image",
    }.items():
        context["metatags"] += meta("property", value, content)


def meta(kind: str, name: str, content: str) -> str:
    """One element of a page's head."""
    return f'\n<meta {kind}="{name}" content="{html.escape(html.unescape(content))}">'
