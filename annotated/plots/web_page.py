"""HTML pages that compute in the browser, and frames in which a notebook shows them."""

import html
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.display import HTML


def json_in_script(data: object) -> str:
    """Return JSON that cannot end the script element around it, whatever words or tags are in it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def document(
    title: str, name: str, settings: Mapping[str, str], scripts: str, head: str = "", top: str = ""
) -> str:
    """Return an HTML page whose scripts fill the element of this name, and read their settings from it."""
    attributes = "".join(f' data-{key}="{html.escape(value)}"' for key, value in settings.items())
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>{head}
<body>{top}
<div id="{name}"{attributes}>
<noscript><p>This page computes in your browser, which needs JavaScript.</p></noscript></div>
{scripts}
</body>
</html>
"""


def framed(page: str, title: str, fallback: str, height: int) -> "HTML":
    """Return a frame with the page in it; a front end that shows no frames shows the fallback text."""
    from IPython.display import HTML

    area = "grid-area: 1 / 1"  # of both: the frame covers the text
    style = f"width: 100%; height: {height}px; border: 0"
    return HTML(
        f'<div style="display: grid"><p style="{area}">{fallback}</p>'
        f'<iframe style="{area}; {style}" title="{title}" srcdoc="{html.escape(page)}"></iframe></div>'
    )
