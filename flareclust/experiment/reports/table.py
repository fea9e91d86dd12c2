"""The table that every view shows in its own way: heads and rows of cells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Bar(NamedTuple):
    """Shares of clusters side by side, each with its `text`, `more` of it where there is room, `style` and `hint`; `many` are shown without numbers on a phone."""

    parts: Sequence[Mapping[str, str]]
    many: bool


class Cell(NamedTuple):
    """A cell of a table, or the head of a column.

    Attributes:
        text: what is read in it.
        kind: its class; of a head, that of the column's cells as well.
        style: its style.
        hint: shown beside the pointer.
        swatch: colour of a small square before the text.
        meter: width of a short bar before the text.
        bar: shares in the place of a text.
        inner: an element around the text: "b", or "span" for a soft one.
        lines: below the text, each of the class `line_kind`.
    """

    text: object
    kind: str = ""
    style: str = ""
    hint: str = ""
    swatch: str = ""
    meter: str = ""
    bar: Bar | None = None
    inner: str = ""
    lines: Sequence[str] = ()
    line_kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table, whose rows are texts and cells, one per head; `more` are not shown.

    A page, a terminal (`flareclust.experiment.reports.terminal.table_of`) and Markdown show of it what they can.
    """

    heads: Sequence[Cell]
    rows: Sequence[Sequence[object]]
    kind: str = ""
    style: str = ""
    more: int = 0


def numbers(*names: object) -> list[Cell]:
    """Return heads of columns of numbers."""
    return [Cell(name, "n") for name in names]


def markdown(table: Table, escape: Callable[[str], str] = str, *, right: bool = False) -> str:
    """Return a table of texts as Markdown, all columns but the first to the `right` if so; nothing for one without rows."""
    if not table.rows:
        return ""
    lines = [[str(head.text) for head in table.heads], *([str(cell) for cell in row] for row in table.rows)]
    head, *rows = ("| " + " | ".join(map(escape, line)) + " |\n" for line in lines)
    marks = ["---", *["---:" if right else "---"] * (len(table.heads) - 1)]
    return "".join([head, "| " + " | ".join(marks) + " |\n", *rows])
