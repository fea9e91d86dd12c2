"""Results on sites with different columns: who has which, where rows with gaps belong, what to warn of.

The arrays of such a result hold `mask` (k, D), which entries of the centroids are known, and what `Columns.kept` and
`Columns.sent` say.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.missing import distances
from flareclust.data.frames import is_frame, table_of
from flareclust.data.frames import names_of as frame_names
from flareclust.preparation.columns import alike, by_site, decides_distances, in_common, outweighing, sharing
from flareclust.protocol import registry
from flareclust.protocol.columns import FILL, Columns

#: Key of the masks of the final centroids; a result without it is of sites with the same columns.
MASK = "mask"

#: What `flareclust.preparation.alignment.names_of` calls columns without names.
_NUMBERED = re.compile(r"column \d+ of \d+")

#: Set where the columns were scaled for clustering.
STANDARDIZED = "standardized"


def is_partial(arrays: Mapping[str, Array]) -> bool:
    """Return whether a result is one of an algorithm for sites with different columns."""
    return MASK in arrays


def columns_of(arrays: Mapping[str, Array]) -> Columns:
    """Return the columns of a result, from the arrays of `Columns.sent` and `Columns.kept`."""
    return Columns(
        arrays.get("mean"),
        arrays.get("deviation"),
        arrays.get(FILL),
        codes=arrays["columns"],
        names=tuple(arrays["column_names"].tolist()),
        sites=tuple(arrays["column_sites"].tolist()),
        masks=arrays["column_masks"],
        union=int(arrays["columns_in_all"]) if "columns_in_all" in arrays else None,
    )


def place_rows(algorithm: str, params: Mapping[str, Any], arrays: Mapping[str, Array], X: FloatArray) -> IntArray:
    """Return the cluster (n,) of rows (n, D) with NaN for what is missing; -1 where nothing known can be compared.

    A row belongs to the centroid with the smallest scaled distance over the entries that both have, in the units in which
    the federation worked. `fkm-imputed` fills gaps with the federation's means, as its sites do.
    """
    centroids = arrays["centroids"]
    if _view(algorithm) == "imputed":
        X = np.where(np.isnan(X), arrays.get(FILL, arrays["mean"]), X)
    if STANDARDIZED in arrays:
        X, centroids = (X - arrays["mean"]) / arrays["deviation"], (centroids - arrays["mean"]) / arrays["deviation"]
    return distances.nearest_by_known(X, centroids, str(params.get("phi", "euclidean")))


def model_settings(algorithm: str, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any] | None:
    """Return what the logged model needs to place rows with gaps, as JSON values; None for a result on the same columns."""
    if not is_partial(arrays):
        return None
    D = len(arrays["columns"])
    return {
        "names": list(columns_of(arrays).names),
        "mean": arrays.get("mean", np.zeros(D)).tolist(),
        "deviation": arrays.get("deviation", np.ones(D)).tolist(),
        "standardize": STANDARDIZED in arrays,
        "fill": _view(algorithm) == "imputed",
        "filling": arrays[FILL].tolist() if FILL in arrays else None,
        "phi": str(params.get("phi", "euclidean")),
    }


def _view(algorithm: str) -> str:
    line = registry.get(algorithm)
    return str(getattr(line.params_class(), "shown", "own") if line.federated else "own")


def with_gaps(X: object, names: tuple[str, ...], fill: FloatArray | None = None) -> FloatArray:
    """Return rows as (n, D) with NaN for what is missing: of a data frame, the columns that it lacks as well.

    With `fill` (D,) the missing cells of columns that a data frame has are filled. Of an array nobody knows which it lacks.

    Raises:
        UserError: no column is known, or X is no table of numbers with as many columns as there are names.
    """
    if is_frame(X):
        present = [name for name in names if name in frame_names(X)]
        if not present:
            raise UserError(f"X has none of the columns of the centroids: {', '.join(names[:12])}")
        table = table_of("X", X, present, may_be_empty=True)
        rows, has = np.full((len(table), len(names)), np.nan), [names.index(name) for name in present]
        rows[:, has] = table.X if fill is None else np.where(np.isnan(table.X), fill[has], table.X)
    else:
        try:
            rows = np.array(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise UserError("X: expected a table of numbers, NaN where one is missing") from None
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise UserError(f"X: expected rows of {len(names)} columns, NaN where one is missing; got shape {rows.shape}")
    if np.isinf(rows).any():
        raise UserError("X: holds infinite values")
    return rows


def warnings(arrays: Mapping[str, Array], unassigned_rows: int) -> list[str]:
    """Return what a user should know about a result on different columns, a sentence each."""
    if not is_partial(arrays):
        return []
    found, unknown = [str(sentence) for sentence in arrays.get("warnings", ())], ~arrays[MASK]
    if unknown.any():
        found.append(
            f"{int(unknown.sum())} of {unknown.size} entries of the centroids were observed by no site and stay unknown (NaN)"
        )
    if "received_group" in arrays and (lost := int((arrays["received_group"] < 0).sum())):
        found.append(
            f"{lost} local clusters were left out: no group that they can be compared with was free for their site"
        )
    columns = columns_of(arrays)
    if any(_NUMBERED.fullmatch(name) for name in columns.names):
        found.append(
            "there are files or arrays without names of columns; these were matched by place: is the order the same?"
        )
    found += [
        f"columns {' and '.join(map(repr, pair))} differ in spelling only, and count as two" for pair in alike(columns)
    ]
    if (column := _outweighing(arrays)) is not None:
        found.append(decides_distances(column, "scale=standard"))
    if unassigned_rows:
        found.append(f"{unassigned_rows} rows could be compared with no centroid and have the label -1")
    return found


def _outweighing(arrays: Mapping[str, Array]) -> str | None:
    """Return the column whose centroids, as the sites sent them, vary most, if that is far more than most columns do."""
    if STANDARDIZED in arrays or "received_centroids" not in arrays:
        return None
    received = arrays["received_centroids"]
    span = np.fmax.reduce(received, axis=0) - np.fmin.reduce(received, axis=0)
    return outweighing(columns_of(arrays).names, span)


def summary(arrays: Mapping[str, Array]) -> dict[str, Any] | None:
    """Return the plain values for JSON: the columns, who has them, the verdict on the overlap; None for a result on the same columns."""
    if not is_partial(arrays):
        return None
    columns = columns_of(arrays)
    return {
        "names": list(columns.names),
        "sites_with": columns.masks.sum(axis=0).tolist(),
        "by_site": by_site(columns),
        "known_entries": int(arrays[MASK].sum()),
        **{name: str(arrays[name]) for name in ("method", "verdict") if name in arrays},
    }


def sentences(arrays: Mapping[str, Array]) -> list[str]:
    """Return what is printed about the columns: how they are shared, and what was concluded from it."""
    if not is_partial(arrays):
        return []
    columns = columns_of(arrays)
    found = [sharing(columns), in_common(columns), str(arrays["verdict"]) if "verdict" in arrays else None]
    return [sentence for sentence in found if sentence is not None]
