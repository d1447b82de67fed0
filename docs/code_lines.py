"""Code line by line: a narrow page wraps each below its own beginning, a wide one fits the letters."""

import html
import re
from collections.abc import Iterator

from pygments.formatters import HtmlFormatter

TAG = re.compile(r"<[^>]*>")


class LineFormatter(HtmlFormatter):
    """Pygments' HTML, in which each line knows its indent, and the block its longest line."""

    def wrap(self, source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        lines = [line for _, line in source]
        texts = [html.unescape(TAG.sub("", line)).rstrip() for line in lines]
        self.prestyles = f"--longest: {max(map(len, texts), default=0)}"
        indents = [len(text) - len(text.lstrip()) for text in texts]
        return super().wrap(
            (1, f'<span class="line" style="--indent: {indent}">{line}</span>')
            for indent, line in zip(indents, lines, strict=True)
        )
