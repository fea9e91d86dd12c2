"""Rows that come after a run: a late site's table, read by the schema of the federation, in the clusters of the run.

And what is said of such rows: columns unlike those of the run's own rows, and rows far from every cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.display import in_unit, some
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.core import mixtures
from flareclust.data.schema.columns import TableSchema, features_of, read_schema
from flareclust.data.schema.reading import without
from flareclust.data.tables import File, Numbers, Table, read_table
from flareclust.engines.late_sites import placed, read_finished, row_name_of
from flareclust.evaluation import agreement
from flareclust.evaluation.moved import Moved, moved_since
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.tables.typed_files import typed_file
from flareclust.preparation import alignment
from flareclust.preparation import result as partial
from flareclust.preparation.assignment import mixture_of
from flareclust.preparation.placement import placements, thresholds_of
from flareclust.preparation.scaling import filled
from flareclust.protocol import cluster_arrays, registry
from flareclust.protocol.columns import FILL

#: So many rows that are far from every cluster are named.
_MOST_NAMED = 10


class _PlacedFile(NamedTuple):
    """Rows of a file in the clusters of a finished run.

    Attributes:
        labels: the cluster of each row (n,).
        details: what the algorithm says of each row beside it (n,), by name.
        table: the rows.
        id_name: name of the column with ids; None without one.
        row_name: what the run calls its rows.
    """

    labels: IntArray
    details: Mapping[str, FloatArray]
    table: Table
    id_name: str | None
    row_name: str


def place_file(
    folder: Path,
    file: Path,
    site: str,
    columns: Sequence[str] | None = None,
    salt: str = "",
    schema: Path | None = None,
    *,
    new_rows: bool = False,
    outliers: float | None = None,
) -> _PlacedFile:
    """Return where the rows of a late site's file belong.

    Args:
        folder: of the finished run, as `flareclust.engines.late_sites.placed` takes it.
        file, site: of the late site.
        columns: without a schema, names of the columns to use; None for those of the result, or all where it has no names.
            Where the sites had different columns, the late one may lack some.
        salt: the secret that the sites hashed the names of their columns with, if they did.
        new_rows: whether the site may have taken part, and these are rows that came later.
        outliers: of a mixture, the share of rows drawn from it that are called outliers; then `details` have `outlier`.
        schema: the file with the federation's schema, by which and the mapping beside it the file is read; None for names.

    Raises:
        UserError: the file cannot be used or lacks a column, the schema is not that of the run, or the rows cannot be placed.
        TableFaults: the table does not fit the schema.
    """
    finished, about = read_finished(folder)
    partial, whole = registry.get(about["algorithm"]).partial, {**finished.arrays, "centroids": finished.centroids}
    level = None if outliers is None else mixtures.outlier_level(mixture_of(whole), outliers)
    try:
        if schema is None:
            gaps = FILL in finished.arrays or about["params"].get("missing") == "drop-rows"
            names = _names(about, file, columns, partial=partial)
            table, id_name = replace(read_table(file, names, may_lack=partial, gaps=gaps), salt=salt), None
        else:
            known, used = _agreed(schema, about, folder, partial=partial)
            table, id_name = replace(typed_file(file, known, None, outcome=False), schema=used), known.id
        rows = table if partial or table.schema else table.X  # a job can ask by which schema rows were read
        labels, details = placed(folder, rows, site, new_rows=new_rows)
        if level is not None:
            details = {**details, "outlier": (np.asarray(details["log_density"]) < level).astype(np.float64)}
        return _PlacedFile(labels, details, table, id_name, row_name_of(about))
    except UserError as error:
        own = None if (schema or columns) is not None else _setting(about, "table_schema")
        if own is None:
            raise
        raise UserError(f"{error}; the run read its tables by a schema: --schema {own}") from None


def _names(
    about: Mapping[str, Any], file: Path, columns: Sequence[str] | None, *, partial: bool
) -> Sequence[str] | None:
    """Return the names of the columns to read of a file: those asked for, or those of the run."""
    names = about.get("columns")
    if partial and any(name.startswith(alignment.HIDDEN) for name in names or ()):
        return columns  # hidden ones are found by their codes, among all columns of the file
    if columns is None and names is not None and Numbers().columns_of(File(file, str(file))) is not None:
        return list(names)
    for name in columns or ():
        if partial and names is not None and name not in names:
            raise UserError(f"the federation has no column {name!r}{did_you_mean(name, names)}")
    return columns


def _agreed(schema: Path, about: Mapping[str, Any], folder: Path, *, partial: bool) -> tuple[TableSchema, str]:
    """Return by which schema to read new rows, without weights and known classes, and the fingerprint of the run's own schema.

    Labels are the same, however often a row counts and whatever its class is. A column with classes that the run did not read may
    be in the file's schema, if it is that of the run otherwise.

    Raises:
        UserError: the file has the schema of another run.
    """
    whole, columns = read_schema(schema), about.get("columns")
    classes = [truth] if (truth := _setting(about, "truth")) is not None else []
    used = about.get("schema", about["params"].get("table_schema") or whole.fingerprint)
    if not partial and isinstance(columns, list):
        more = [name for name, one in whole.used.items() if not set(features_of(name, one)) & set(columns)]
        plain = _without_all(whole, more)
        if used in (plain.fingerprint, without(plain, plain.weight).fingerprint):
            classes = more
    known = _without_all(whole, classes)
    known = without(known, known.weight)
    features, other = list(known.features), f"{schema} is not the schema of the run in {folder}: they differ in"
    if not partial and isinstance(columns, list) and features != columns:
        odd = [name for name in features if name not in columns] + [name for name in columns if name not in features]
        what = "their order" if not odd else ", ".join(map(repr, odd[:5])) + did_you_mean(odd[0], columns)
        raise UserError(f"{other} {what}; name that of the run")
    agreed = {one.fingerprint for one in (whole, without(whole, whole.weight), _without_all(whole, classes), known)}
    if used not in agreed and features == columns:
        raise UserError(
            f"{other} what the columns mean, such as units, ranges, or missing cells, or in a column of weights or known classes that it "
            "lacks; name that of the run"
        )
    return known, used


def _without_all(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """Return a schema where these columns are no features; as it is where nothing would be left."""
    return schema if schema.used.keys() <= set(names) else reduce(without, names, schema)


def notes_on(folder: Path, table: Table) -> list[str]:
    """Return what is to be said of a late site's rows: columns in another unit than in the run, and which rows are far.

    These are for the site's own eyes: far rows are named by their ids.
    """
    finished, about = read_finished(folder)
    arrays, columns = {**finished.arrays, "centroids": finished.centroids}, about.get("columns")
    if partial.is_partial(arrays) and (table.columns is None or list(table.columns) != columns):
        return []  # it has other columns, or hidden ones
    assessed = (about.get("assessed") or {}).get("rows")
    notes, row_name = columns_unlike_those_of(arrays, about["params"], columns, table.X, assessed), row_name_of(about)
    far = _far_rows(arrays, about, table, row_name)
    return [*(in_unit(note, row_name) for note in notes), *([far] if far else [])]


def moved_in(folder: Path, site: str, table: Table, labels: IntArray) -> tuple[Moved | None, str]:
    """Return what has moved since a saved run, and the date of the run; None for a run without profiles, or of other columns."""
    finished, about = read_finished(folder)
    row_name, date = row_name_of(about), str(about.get("date", ""))
    profiles = profiles_of(finished.arrays, about.get("columns"), row_name)
    if profiles is None or profiles.mean.shape[1] != table.X.shape[1] or not profiles.rows.any():
        return None, date
    return moved_since(profiles, site, table.X, labels), date


def _setting(about: Mapping[str, Any], name: str) -> str | None:
    """Return a setting of a saved run that is text; None where it has none."""
    experiment = about.get("experiment")
    found = experiment.get(name) if isinstance(experiment, Mapping) else None
    return found if isinstance(found, str) else None


def columns_unlike_those_of(
    arrays: Mapping[str, Array],
    params: Mapping[str, Any],
    columns: Sequence[str] | None,
    X: FloatArray,
    rows: int | None = None,
) -> list[str]:
    """Return a sentence for each column of new rows (n, d) that seems to be in another unit than in the rows of a run.

    The run knows mean and deviation of its columns from its profiles, or with `scale=standard`; else nothing is said. `rows` is
    how many rows of the run these are of; None where it does not say.
    """
    profiles, d = profiles_of(arrays, columns), X.shape[1]
    if profiles is not None and profiles.mean.shape[1] == d:
        cells = profiles.cells.sum(axis=0)
        center, deviation = profiles.overall
        valued = ~profiles.shares
    elif params.get("scale") == "standard" and len(arrays.get("mean", ())) == d and not params.get("categories"):
        if not rows:
            return []
        cells, valued = np.full(d, rows), np.ones(d, dtype=bool)
        center, deviation = arrays["mean"], arrays["deviation"]
    else:
        return []
    names = columns or [f"column {j + 1}" for j in range(d)]
    units = {name: str(unit) for name, unit in zip(names, arrays.get(cluster_arrays.UNITS, ()), strict=False)}
    known = cells[valued], center[valued], deviation[valued]
    return agreement.unlike_columns(X[:, valued], known, list(compress(names, valued)), units)


def _far_rows(arrays: Mapping[str, Array], about: Mapping[str, Any], table: Table, row_name: str) -> str:
    """Return how many of new rows, in the units of the data, are far from every cluster of a saved run, and which; empty where
    that is not known.
    """
    X = table.X
    if partial.is_partial(arrays) or arrays["centroids"].shape[1:] != X.shape[1:] or not len(X):
        return ""
    rows = filled(arrays, X)
    known = about.get("metrics", {}).get("inertia"), (about.get("assessed") or {}).get("rows")
    thresholds = thresholds_of(arrays, *known)
    if thresholds is None or not np.isfinite(rows).all():
        return ""
    far = placements(arrays, rows, thresholds).far
    assert far is not None
    n = int(np.count_nonzero(far))
    found = f"{n:,} of {len(X):,} {row_name} ({n / len(X):.1%}) {'is' if n == 1 else 'are'} far from every cluster"
    names = list(map(str, compress(range(len(X)) if table.ids is None else table.ids, far)))
    where = " in the column row of labels.csv" if table.ids is None else ""
    return f"{found}: {some(names, _MOST_NAMED)}{where}" if n else found
