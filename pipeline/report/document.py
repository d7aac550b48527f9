"""The frame of every page this project writes: one file, no network, with its data embedded. Knows nothing of what pages say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser itself refuses to load anything from outside."""


def document(title: str, body: str, styles: Sequence[str], scripts: Sequence[str], data: object) -> str:
    """A whole page. ``data`` is embedded as JSON that the scripts read; no text in it can end the element."""
    style = "\n".join(asset(name) for name in styles)
    script = "\n".join(asset(name) for name in scripts)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}
</style>
</head>
<body>
{body}
<script type="application/json" id="data">{embed(data)}</script>
<script>
{script}
</script>
</body>
</html>
"""
    # Half a surrogate pair, which damaged product texts may hold, has no UTF-8.
    return page.encode("utf-8", "replace").decode("utf-8")


def asset(name: str) -> str:
    """A style or script file of this package."""
    return (files("pipeline.report") / "assets" / name).read_text(encoding="utf-8")


def embed(data: object) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "&<>\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def attribute(text: object) -> str:
    """``text`` safe inside double quotes."""
    return escape(str(text), quote=True)


def section(identifier: str, title: str, body: str) -> str:
    """A titled card; ``body`` is HTML."""
    return f'<section id="{identifier}"><h2>{escape(title)}</h2>{body}</section>'


def empty(text: str) -> str:
    """A sentence in place of what is not there."""
    return f'<p class="empty">{escape(text)}</p>'


def table(head: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls sideways when narrow; ``head`` is text, ``rows`` are HTML rows."""
    header = "".join(f"<th>{escape(h)}</th>" for h in head)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def row(*cells: str) -> str:
    """A table row of HTML cells."""
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>"


def facts(title: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, as text."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in pairs)
    return f"<div><h3>{escape(title)}</h3><table class='plain'>{rows}</table></div>"


def both_widths(wide: str, narrow: str) -> str:
    """Two drawings of the same thing: for a desk and for a phone."""
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
