"""HTML that needs nothing but itself."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from html import escape

_CSS = """
:root { color: #24292f; background: #fff; font: 16px/1.55 system-ui, sans-serif; }
body { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid #d8dee4; }
p { max-width: 46rem; }
figure { margin: 1.25rem 0; }
img { max-width: 100%; height: auto; }
figcaption, caption { color: #57606a; font-size: .9rem; text-align: left; padding: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #eaeef2; }
th { font-weight: 600; border-bottom-color: #8b929a; }
th:first-child, td:first-child, .word { text-align: left; }
"""


def page(title: str, sections: Sequence[str]) -> str:
    """A whole page. `sections` come from `section`."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>",
            *sections,
            "</body>\n</html>\n",
        ]
    )


def section(title: str, text: str, *parts: str) -> str:
    """A headed section of a paragraph and of `parts`, which are HTML."""
    paragraph = [f"<p>{escape(text)}</p>"] if text else []
    return "\n".join([f"<section>\n<h2>{escape(title)}</h2>", *paragraph, *parts, "</section>"])


def figure(data: bytes, alt: str, *, caption: str = "", media_type: str = "image/png") -> str:
    """An image held in the page."""
    encoded = base64.b64encode(data).decode("ascii")
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{escape(alt)}" src="data:{media_type};base64,{encoded}">{below}</figure>'


def table(columns: Sequence[str], lines: Sequence[Sequence[str]], caption: str = "", left: Collection[str] = ()) -> str:
    """A table of texts. Columns are numbers, set to the right, but for the first and those in `left`."""
    opening = [' class="word"' if name in left else "" for name in columns]
    head = "".join(f"<th{word}>{escape(name)}</th>" for name, word in zip(columns, opening, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{word}>{escape(cell)}</td>" for cell, word in zip(line, opening, strict=True)) + "</tr>"
        for line in lines
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
