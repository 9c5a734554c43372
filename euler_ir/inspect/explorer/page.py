"""The page: one HTML file with style, script and data in it, which needs no server and nothing of the network."""

from __future__ import annotations

import base64
import functools
import html
import json
import re
import zlib
from importlib import resources

from euler_ir.inspect.explorer.collect import Exploration

STYLES = ("base", "layout", "lists", "panes")
SCRIPTS = (
    "dom", "data", "model", "state", "selection", "list", "code", "panes",
    "layers", "details", "source", "stages", "kernels", "fusion", "memory", "numerics", "search", "layout", "main",
)  # fmt: skip
"""The files of the script in their order; those of the panes stand in the order in which the panes are shown."""


def page(exploration: Exploration) -> str:
    """The page of ``exploration``, complete: a function of it alone."""
    pieces = {
        "title": html.escape(exploration.title),
        "target": html.escape(exploration.target),
        "style": "\n".join(_file(f"{name}.css") for name in STYLES),
        "script": "\n".join(_file(f"{name}.js") for name in SCRIPTS),
        "parts": "\n".join(_part(name, record) for name, record in exploration.parts.items()),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: pieces[found.group(1)], _file("explorer.html"))


@functools.cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _part(name: str, record: dict) -> str:
    """``record`` as JSON, deflated, in base64, which no HTML parser can mistake for anything."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")
    return f'<script type="application/octet-stream" id="part-{name}">{data}</script>'
