"""Results as tables for a terminal, and the same on one HTML page."""

import html
import math
import os
import sys

from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from models.command_line import Screen
from models.files import replacing

BAR = 24
FILE_WIDTH = 200
"""Columns where no terminal says how many it has."""
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: #fbfaf8; color: #23262b;
  font: 14px/1.5 system-ui, sans-serif; }}
pre {{ overflow-x: auto; padding: 1rem; background: #fff; border: 1px solid #e3dfd8; border-radius: 6px;
  font: 12px/1.35 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{stylesheet}
</style>
<h1>{title}</h1>
<pre>{code}</pre>
</html>
"""


def screen(page=None):
    """A console; with `page`, the path of an HTML file, it remembers what it prints for `write_page`."""
    # Tokens may look like rich's markup or emoji codes; they are shown as they are.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
    return Screen(width=width, highlight=False, markup=False, emoji=False, record=page is not None)


def write_page(console, path, title):
    """Write what a console of `screen(path)` has printed as one HTML file that needs no other. Raises OSError."""
    frame = PAGE.replace("{title}", html.escape(title).replace("{", "{{").replace("}", "}}"))
    with replacing(path) as file:
        file.write(console.export_html(code_format=frame).encode())


def table(title, *columns):
    """An empty table. A column is its heading: one that begins with `>` is of numbers, one without any is of bars.

    On a narrow screen bars become shorter, and the last column is written on several lines.
    """
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        gives_way = not column or column is columns[-1]
        # A number that is cut must be seen to be.
        kind = {"justify": "right", "overflow": "ellipsis"} if column.startswith(">") else {"overflow": "fold"}
        width = None if column else BAR
        made.add_column(column.removeprefix(">"), no_wrap=not gives_way, max_width=width, **kind)
    return made


def signed_bar(number, largest):
    """A bar from the middle, to the right for positive numbers and to the left for negative ones."""
    if not (math.isfinite(number) and largest > 0):
        return Text("")
    share = max(-1.0, min(1.0, number / largest))
    return Bar(2, 1 + min(share, 0), 1 + max(share, 0), color="blue" if share > 0 else "red")


def share_bar(number, largest=1.0):
    """A bar from the left for a number of 0 or more."""
    if not (math.isfinite(number) and largest > 0):
        return Text("")
    return Bar(1, 0, min(1.0, number / largest), color="blue")


def tokens_with_scores(subject, ids, scores):
    """The text, each token on a ground that is the redder or bluer the lower or higher its score is."""
    largest = max(map(abs, scores), default=0.0)
    text = Text()
    for token, score in zip(ids, scores):
        depth = 0 if not largest else round(155 * abs(score) / largest)
        ground = (255, 255 - depth, 255 - depth) if score < 0 else (255 - depth, 255 - depth, 255)
        text.append(subject.shown(token)[1:-1], f"black on rgb({','.join(map(str, ground))})")
    return text


def heat(share):
    """A cell that is the fuller the nearer a share is to 1."""
    return Text("·░▒▓█"[min(4, int(5 * share))] * 2, "blue")
