"""What `print(result)` shows: as much as fits on a terminal of 24 lines of 80 letters."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from flareclust._foundation.display import measured, printable, shortened, some
from flareclust.evaluation.outcomes import outcomes_of
from flareclust.experiment.results.sizes import floor_of, shown_sizes, size_text

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: So many metrics, clusters and warnings are shown.
_MOST_SHOWN, _MOST_WARNINGS = 8, 6

#: The size of the terminal, less the line and the column of its cursor.
_LINES, _WIDTH = 23, 79


def printed(result: "Result") -> str:
    """Return what ran, metrics, sizes of clusters, outcomes, warnings, and where the files are."""
    head = [shortened(printable(line), _WIDTH) for line in _head(result)]
    tail, warnings = [shortened(printable(line), _WIDTH) for line in _tail(result)], result.warnings[:_MOST_WARNINGS]
    room = (_LINES - len(head) - len(tail)) // max(len(warnings), 1)
    return "\n".join([*head, *(line for warning in warnings for line in _point(warning, room)), *tail])


def _head(result: "Result") -> Iterator[str]:
    if title := result.experiment.get("title"):
        yield str(title)
    yield (
        f"{result.algorithm}, {result.engine}: {result.centroids_found} of {result.k} centroids, {result.took_part}, "
        f"{result.rounds} rounds"
    )
    for name, value in list(result.ranked_metrics.items())[:_MOST_SHOWN]:
        yield f"{name}: {'undefined' if value is None else measured(name, value, 4)}"
    if (rows := shown_sizes(result)) is not None:
        floor = floor_of(result)
        sizes = some([f"{c}: {size_text(n, floor)}" for c, n in enumerate(rows.tolist())], _MOST_SHOWN, "more")
        yield f"{result.row_name} by cluster: {sizes}"
    if (outcomes := outcomes_of(result.arrays)) is not None:
        for test in outcomes.tests()[-1:]:
            yield f"{outcomes.name}: {test.name}, {test.p_text}"


def _tail(result: "Result") -> Iterator[str]:
    if (more := len(result.warnings) - _MOST_WARNINGS) > 0:
        yield f"and {more} more warnings"
    if result.centroids_file:
        yield f"files: {Path(result.centroids_file).parent}"


def _point(text: str, lines: int) -> list[str]:
    """Return a text as a point of a list of so many lines, without its middle where it is longer."""
    text, most = printable(text), lines * (_WIDTH - 2)
    cut = text
    while len(found := wrap(cut, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)) > lines:
        cut, most = shortened(text, most), most - 1
    return found
