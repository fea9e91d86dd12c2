"""A federation ready to run: its rows by site, and how to read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import Agreement, FloatArray, IntArray, Reading
from flareclust.core.scaling import without_direction
from flareclust.data.datasets import Dataset
from flareclust.data.devices import Devices
from flareclust.data.memory import site_limit
from flareclust.data.tables import Rows, Table
from flareclust.sites.rows import SiteData


@dataclass(frozen=True)
class Prepared:
    """A federation ready to run.

    Attributes:
        k: number of clusters; of a range, the largest. Of a source the known one of the data, 0 where none is known.
        sites: rows (n_i, d), or the file with them, by site; empty where they are the sites' own.
        index: which rows of the data set each site has, in all of them or some; None where the sites brought their own.
        dataset: the data set that was split, None where there is none.
        columns: names of the columns (d), where they have any; files of sites are read by them.
        agreement: how a site's file must agree with `columns`.
        params: settings of the algorithm that follow from the data; those of the experiment come first.
        units: of the columns (d), "" for none, where a schema has some; else empty.
        ids: of each site's rows, where they have any and were read here.
        schema: fingerprint of the schema by which all rows were read, "" for none or several.
        words: by that schema, the columns whose cells are words, see `TableSchema.words`.
        outcomes: the form of the outcomes of all rows, by that schema (`OutcomeForm.numbers`); None for none.
        outcome_names: what these outcomes are called, see `TableSchema.outcome_names`.
        outcome_hint: a sentence where features may tell the outcome, "" for none.
        parted: whether the sites are parts of one table that were made here, so that none has units of its own.
        devices: the rows of the sites of the engine devices, which are in none of `sites` and `index`; None for others.
    """

    k: int
    sites: Mapping[str, Rows]
    index: Mapping[str, IntArray] | None = None
    dataset: Dataset | None = None
    columns: tuple[str, ...] | None = None
    agreement: Agreement = "has"
    params: Mapping[str, Any] = field(default_factory=dict)
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    units: tuple[str, ...] = ()
    schema: str = ""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outcomes: tuple[float, ...] | None = None
    outcome_names: tuple[str, ...] = ()
    outcome_hint: str = ""
    parted: bool = False
    devices: Devices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise UserError where k is more than all rows that are known; how many a site's file has, the site sees."""
        if self.k > (n := known_rows(self.sites, self.dataset, self.devices)):
            raise UserError(f"k={self.k} is more than the {n:.0f} rows of all sites together; give a smaller k")

    @property
    def reading(self) -> Reading:
        """Return how the sites' files are read; None for rows in memory, and files without names."""
        files = all(isinstance(rows, Path) for rows in self.sites.values())
        return (self.columns, self.agreement) if files and self.columns is not None else None

    def settled(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an experiment with these settings that the data decide: `k` and `params`."""
        return {"k": self.k, "params": {**self.params, **params}}


def known_rows(sites: Mapping[str, Rows], dataset: Dataset | None, devices: Devices | None) -> float:
    """Return how many rows all sites have together; infinitely many where that is not known."""
    if devices is not None:
        return devices.n
    if dataset is not None:
        return len(dataset.X)
    sizes = [len(rows) for rows in sites.values() if not isinstance(rows, Path)]
    return sum(sizes) if sizes and len(sizes) == len(sites) else np.inf


def names_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of a data set's columns; x1, x2, ... where it has none."""
    return dataset.columns or tuple(f"x{j + 1}" for j in range(dataset.X.shape[1]))


def in_places(table: Table, names: Sequence[str]) -> FloatArray:
    """Return a table's rows (n, D) with its columns in the places of `names`, NaN for those that it lacks."""
    own, rows = table.columns or tuple(names), np.full((len(table), len(names)), np.nan)
    for j, name in enumerate(names):
        if name in own:
            rows[:, j] = table.X[:, own.index(name)]
    return rows


def check_directions(prepared: Prepared) -> None:
    """Raise UserError where rows that are here have no direction: those of zeros only, which no cosine compares."""
    problems = []
    for site, rows in prepared.sites.items():
        none = np.zeros(0) if isinstance(rows, Path) else without_direction(rows.X if isinstance(rows, Table) else rows)
        if none.any():
            problems.append(f"{site}: {int(none.sum())} rows hold zeros only, first in row {int(none.argmax()) + 1}")
    if problems:
        raise UserError(f"{'; '.join(problems)}; such rows have no direction: leave them out, or take metric=euclidean")


def tables_of(prepared: Prepared, *, skip_unreadable: bool = False, gaps: bool = True) -> dict[str, Table]:
    """Return the rows (n_i, d_i) of every site, with the names of their columns where they have any.

    Args:
        prepared: has arrays, or files to read.
        skip_unreadable: whether to leave out sites whose files cannot be used, instead of raising.
        gaps: whether cells may be missing, which is NaN.

    Raises:
        UserError: a file cannot be used; the text names the site.
    """
    tables = {}
    columns, agreement = prepared.reading or (None, "has")
    for site, rows in prepared.sites.items():
        if isinstance(rows, Path):
            try:
                data = SiteData(rows, columns, agreement, memory=site_limit(len(prepared.sites)))
                tables[site] = data.table(reader_owns_them=True, gaps=gaps)
            except Refusal as error:
                if not skip_unreadable:
                    raise UserError(f"{site} {error}") from error
        else:
            tables[site] = rows if isinstance(rows, Table) else Table(rows)
    return tables
