"""Rows that came after a run, in its clusters: what has moved since, as tables for a terminal and as a page."""

from collections.abc import Sequence

import numpy as np

from flareclust._foundation.display import rounded, signed
from flareclust._foundation.version import __version__
from flareclust.evaluation import profile_words
from flareclust.evaluation.moved import Moved
from flareclust.experiment.reports.html import cluster_cell, render, tinted
from flareclust.experiment.reports.table import Cell, Table, numbers

#: The name of the page.
PAGE = "placed.html"

#: So many columns are listed, those first that have moved most.
_MOST_COLUMNS = 40


def moved_tables(moved: Moved) -> tuple[Table, Table]:
    """Return the shares of the clusters, and the means of the columns, in the run and now."""
    profiles, k = moved.profiles, len(moved.rows_now)
    then, now = moved.shares
    shares = [
        [
            cluster_cell(c, k),
            f"{moved.rows_now[c]:,}",
            profile_words.percent(then[c]),
            profile_words.percent(now[c]),
            _points(float(then[c]), float(now[c])),
        ]
        for c in range(k)
    ]
    order, columns = np.argsort(-np.abs(np.nan_to_num(moved.apart)), kind="stable")[:_MOST_COLUMNS].tolist(), []
    for j in order:
        values = (float(moved.then[j]), float(moved.now[j]))
        apart = float(moved.apart[j])
        said = signed(apart, 2) if np.isfinite(apart) else "constant"
        columns.append(
            [
                Cell(profile_words.with_unit(profiles, j), "name"),
                *(profile_words.value_of(profiles, j, one) for one in values),
                tinted(said, apart),
            ]
        )
    whose = moved.site or "all sites"
    heads = Cell("cluster"), *numbers(f"{profiles.row_name} now", f"share then, {whose}", "share now", "points")
    of_columns = Cell("column", "name"), *numbers(f"mean then, {whose}", "mean now", "standard deviations")
    return Table(heads, shares), Table(of_columns, columns)


def _points(then: float, now: float) -> str:
    """Return how many points a share has moved, between the whole per cent that stand beside it."""
    before, after = (int(rounded(100 * share, 0)) for share in (then, now))
    return signed(after - before, 0)


def placed_page(moved: Moved, file: str, rows: int, date: str, notes: Sequence[str]) -> str:
    """Return the page of a file's rows that were placed.

    Args:
        moved: what has moved since the run.
        file: its name.
        rows: how many it has.
        date: of the run, "" where it is not known.
        notes: what else is to be said of them, a sentence each.
    """
    shares, columns = moved_tables(moved)
    said = list(moved.sentences())
    return render(
        "placed.html",
        file=file,
        rows=rows,
        row_name=moved.profiles.row_name,
        date=date,
        notes=notes,
        said=said,
        shares=shares,
        columns=columns,
        version=__version__,
    )
