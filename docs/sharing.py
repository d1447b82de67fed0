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
    home = app.config.html_baseurl
    said = {
        "description": text,
        "og:description": text,
        "og:title": html.unescape(context["title"]),
        "og:type": "article",
        "og:image": urljoin(home, CARD) if home else context["pathto"](CARD, True),
        "twitter:card": "summary_large_image",
    }
    for name, content in said.items():
        kind = "property" if ":" in name else "name"
        context["metatags"] += f'\n<meta {kind}="{name}" content="{html.escape(content)}">'
