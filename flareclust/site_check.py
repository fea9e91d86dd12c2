"""What an operator asks at a site before the first job: are the rows named, can they be used, are our classes allowed?

Everything here is for the site's own eyes. Texts and tables name columns and show values.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flareclust.columns import OUTWEIGHS, outweighing
from flareclust.engines.workspace import PREFIX
from flareclust.errors import Refusal, UserError
from flareclust.sites import CONFIG_FILE, SiteData, write_site
from flareclust.tables import Table
from flareclust.typing import FloatArray

#: With fewer rows than this, whole numbers that all differ are no sign of a row's number.
_ENOUGH = 20


@dataclass(frozen=True)
class Column:
    """One column of a site's rows: its name, how many different values it has, the least, the mean, the largest."""

    name: str
    different: int
    least: float
    mean: float
    largest: float


@dataclass(frozen=True)
class Checked:
    """What a site brings to a job.

    Attributes:
        site: its name.
        file: where its rows are.
        rows: how many.
        columns: a line each.
        hints: what the operator may want to change, a sentence each; none of it keeps the site from taking part.
    """

    site: str
    file: Path
    rows: int
    columns: Sequence[Column]
    hints: Sequence[str]


def local_of(kit: Path) -> Path:
    """Return the folder `local` of a site's kit, as NVFlare's provisioning makes it.

    Raises:
        UserError: the folder is no kit.
    """
    if not (kit / "startup").is_dir() or not (kit / "local").is_dir():
        raise UserError(
            f"{kit} is no kit: expected a folder with startup/ and local/, such as kits/clinics/prod_00/north"
        )
    return kit / "local"


def init(kit: Path, rows: str, columns: Sequence[str] | None = None) -> Path:
    """Write the site's `local/flareclust.yaml` and return it.

    Args:
        kit: the site's.
        rows: the file with its rows, absolute or relative to the folder `local`; `{site}` stands for the site's name.
        columns: names of the columns to use; None for all.

    Raises:
        UserError: the folder is no kit, or has such a file already.
    """
    file = local_of(kit) / CONFIG_FILE
    if file.exists():
        raise UserError(f"{file} is there already; edit it, or remove it first")
    return write_site(file, rows, columns)


def check(kit: Path, site: str | None = None) -> Checked:
    """Read a site's rows as a job would, and look for what is odd about them.

    Args:
        kit: the site's.
        site: its name; None for that of the folder.

    Raises:
        UserError: the folder is no kit, or a job would be refused; the text says why, and what to do.
    """
    local, name = local_of(kit), site or kit.absolute().name
    try:
        data = SiteData.of(local, name)
        table = data.table(reader_owns_them=True)
    except Refusal as reason:
        raise UserError(f"{name} {reason}") from None
    X = table.X
    names = table.columns or tuple(f"column {j + 1}" for j in range(X.shape[1]))
    different = [len(np.unique(column)) for column in X.T]
    columns = [
        Column(name, values, float(x.min()), float(x.mean()), float(x.max()))
        for name, values, x in zip(names, different, X.T, strict=True)
    ]
    return Checked(name, data.path, len(X), columns, [*_permission(local), *_odd(table, names, columns)])


def _permission(local: Path) -> list[str]:
    """Return the hint that jobs of ours are not allowed, where NVFlare's list does not name us."""
    own = local / "resources.json"
    file = own if own.exists() else local / "resources.json.default"
    try:
        allowed = json.loads(file.read_text(encoding="utf-8")).get("class_allow_list", [])
    except (OSError, ValueError, AttributeError):
        allowed = []
    return (
        []
        if PREFIX in allowed
        else [f"{PREFIX!r} is not among the classes allowed in {file.name}: flareclust site allow"]
    )


def _odd(table: Table, names: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """Return what is odd about the columns, a sentence each."""
    X, hints = table.X, []
    if table.columns is None:
        hints.append("the columns have no names, so they are matched with those of other sites by place")
    if constant := [column.name for column in columns if column.different == 1]:
        hints.append(f"one value only in {_named(constant)}")
    if len(X) >= _ENOUGH and (
        ids := [c.name for c, x in zip(columns, X.T, strict=True) if _numbers_rows(x, c.different)]
    ):
        hints.append(
            f"{_named(ids)}: whole numbers that all differ, as the number of a patient; leave such columns out"
        )
    if (widest := outweighing(names, np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0))) is not None:
        hints.append(
            f"{widest!r} varies more than {OUTWEIGHS} times as much as half of the columns and would decide "
            "the distances: bring columns to comparable units, in the same way at all sites, or take an algorithm with standardize"
        )
    if (copies := len(X) - len(np.unique(X, axis=0))) > len(X) // 2:
        hints.append(f"{copies} of {len(X)} rows repeat another one; clusters of one row repeated are never sent")
    return hints


def _numbers_rows(x: FloatArray, different: int) -> bool:
    return different == len(x) and bool((x == np.floor(x)).all())


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(map(repr, names[:12])) + more
