"""Tables for people, on the terminal and in Markdown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of cells that are texts; the first column is of names, the others are of numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self):
        """The table as lines of Markdown, under a heading."""
        rule = "|---" * len(self.columns) + "|"
        lines = [f"| {' | '.join(cells)} |" for cells in (self.columns, *self.rows)]
        return "\n".join([f"### {self.title}", "", lines[0], rule, *lines[1:], *(("", self.note) if self.note else ())])

    def print(self, console):
        """Print the table on a console of rich."""
        from rich import box
        from rich.table import Table as RichTable

        shown = RichTable(title=self.title, box=box.SIMPLE, caption=self.note, title_justify="left")
        for position, column in enumerate(self.columns):
            shown.add_column(column, justify="right" if position else "left", no_wrap=not position)
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown)


def spread(summary, digits=3):
    """``median [min, max]``."""
    median, low, high = (number(summary[key], digits) for key in ("median", "min", "max"))
    return f"{median} [{low}, {high}]"


def number(value, digits=3):
    """``value`` with that many significant digits, without an exponent."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def percent(part):
    return f"{100 * part:.0f} %"
