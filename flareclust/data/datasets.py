"""Data sets by name, and tables from files with what is known about their true clusters.

Some are always at hand: those of scikit-learn and the generated ones. The others are read from npz files in
$FLARECLUST_DATA (or a cache folder) and fetched from where they are published when they are not there.

Every name takes the setting `pcaD`: "mnist:pca50" has the rows' D leading principal components for columns. They are
computed from all rows together, which a federation does not have: it is for studies.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.core.runtime import one_thread
from flareclust.data import published as official
from flareclust.data.cells import check_rows
from flareclust.data.file_formats import spreadsheet_advice
from flareclust.data.npy_files import npz_arrays
from flareclust.data.tables import SUFFIXES, RowsRead, read_table


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and what is known about them.

    Attributes:
        name: the data set's name with its setting, or the file's.
        X: (n, d) float64 in the unit in which they are published; with `pcaD`, D columns in that unit.
        y: (n,) int64 true cluster or class of each row, or None.
        centroids: (k, d) float64 true centroids, row c for label c, or None.
        columns: the d column names, or None.
        owners: (n,) int64 who each row comes from, such as a writer or a published client, or None.
        rows_read, outcomes, outcome_form: as of a `Table`.
    """

    name: str
    X: FloatArray
    y: IntArray | None = None
    centroids: FloatArray | None = None
    columns: tuple[str, ...] | None = None
    owners: IntArray | None = None
    rows_read: RowsRead = field(default_factory=RowsRead)
    outcomes: FloatArray | None = None
    outcome_form: tuple[float, ...] | None = None

    @property
    def n_clusters(self) -> int | None:
        """The number of true clusters or classes, or None where it is not known."""
        if self.centroids is not None:
            return len(self.centroids)
        return None if self.y is None else len(np.unique(self.y))


def load(
    name_or_path: str | Path, *, verify: bool = False, gaps: bool = False, columns: Sequence[str] | None = None
) -> Dataset:
    """Return a data set by name, or a table from a file.

    A name goes before a file of that name. An npz file may hold `y` and `owners` (n integers each) and `centroids` (k, d)
    beside X.

    Args:
        name_or_path: one of `names()`, with ":pcaD" for its D leading principal components (see `principal`), or the
            path of a table as `tables.read_table` reads it.
        verify: whether to compare a named data set's file with the published one, which takes longer than reading it.
        gaps: whether cells of a table may be missing, which is NaN.
        columns: what to read of a file whose other columns may hold text; all of a data set, and of npz and npy files, is read.

    Raises:
        UserError: unknown name or setting; the data set cannot be fetched or is damaged; the table cannot be read.
    """
    name, _, settings = str(name_or_path).partition(":")
    path = Path(name_or_path)
    named_so = path.suffix.lower() in SUFFIXES or len(path.parts) > 1 or path.is_file()
    if isinstance(name_or_path, Path) or (name not in describe() and named_so):
        return _own_table(path, gaps, columns)
    _known(name)
    own, _, last = settings.rpartition(":")
    pca = re.fullmatch(r"pca(\d{1,9})", last)
    setting, components = (own, int(pca[1])) if pca else (settings, None)
    if setting and name != "garst_grid":
        raise UserError(
            f"data set {name!r} has no setting {setting!r}; write {name!r}, or {name + ':pca2'!r} for its two leading "
            "principal components"
        )
    if name in _GENERATED:
        found = _GENERATED[name][1]()
    else:
        folder = official.data_folder()
        if verify:
            get(name, folder)
        found = _from_files(name, setting, folder)
    return found if components is None else principal(found, components)


def principal(dataset: Dataset, components: int) -> Dataset:
    """Return the data set with its rows, and true centroids, projected on the leading principal components, as its name then says.

    The columns are centred, not scaled. Each component's largest coefficient (the first such) is positive, so that the
    signs do not depend on the machine. All rows are pooled for it: what it gives is for studies of clustering, not
    something that sites could compute by themselves. UserError where there are not as many columns.
    """
    from scipy.linalg import eigh

    d = dataset.X.shape[1]
    if not 1 <= components <= d:
        raise UserError(
            f"data set {dataset.name!r} has {d} columns, so the setting pcaD takes D from 1 to {d}; got pca{components}"
        )
    mean = dataset.X.mean(axis=0)
    with one_thread():  # the same sums whatever runs beside it
        X = dataset.X - mean
        vectors = eigh(X.T @ X, subset_by_index=(d - components, d - 1), driver="evr")[1][:, ::-1]
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(components)])
        centroids = None if dataset.centroids is None else (dataset.centroids - mean) @ vectors
        X = X @ vectors
    return replace(dataset, name=f"{dataset.name}:pca{components}", X=X, centroids=centroids, columns=None)


def names() -> list[str]:
    """Return the names of the data sets; those always at hand come first."""
    return list(describe())


def describe() -> dict[str, str]:
    """Return one line about each data set, by name."""
    return {name: text for name, (text, _) in _GENERATED.items()} | {
        name: entry.text for name, entry in official.OFFICIAL.items()
    }


def get(name: str, folder: str | Path | None = None) -> Path:
    """Return the npz file of a data set: fetched where it is not there yet, and compared with the published data.

    Data sets that are always at hand are written as npz, too. Without a folder it is in $FLARECLUST_DATA or the cache.

    Raises:
        UserError: unknown name, no network, damaged files, or a folder that cannot be written.
    """
    _known(name)
    base = official.data_folder() if folder is None else Path(folder)
    if name in _GENERATED:
        data = _GENERATED[name][1]()
        known = {"X": data.X, "y": data.y, "centroids": data.centroids, "columns": data.columns}
        arrays = {key: np.asarray(value) for key, value in known.items() if value is not None}
        return official.write(base / name / f"{name}.npz", arrays)
    if name == "qmnist":
        get("mnist", base)  # its images
    path = base / official.OFFICIAL[name].file
    if not path.is_file():
        return official.fetch(name, base)
    official.verify(name, path)
    return path


def _known(name: str) -> None:
    if name not in (known := names()):
        raise UserError(
            f"unknown data set {name!r}{did_you_mean(name, known)}. There are {', '.join(known)}; "
            f"or name a file ({', '.join(SUFFIXES)}){spreadsheet_advice(Path(name))}"
        )


def _own_table(path: Path, gaps: bool, columns: Sequence[str] | None) -> Dataset:
    of_numbers = path.suffix.lower() in (".npz", ".npy")
    table = read_table(path, None if of_numbers else columns, gaps=gaps)
    known = npz_arrays(path, ("y", "centroids", "owners")) if path.suffix.lower() == ".npz" else {}
    y, centroids, owners = known.get("y"), known.get("centroids"), known.get("owners")
    for name, value in (("y", y), ("owners", owners)):
        if value is not None and (value.dtype.kind not in "iub" or value.shape != table.X.shape[:1]):
            raise UserError(
                f"{path}: `{name}` must hold one integer per row, ({len(table.X)},), got {value.dtype} of shape {value.shape}"
            )
    if centroids is not None:
        centroids = check_rows(centroids, where=f"{path}: `centroids`")
        if centroids.shape[1] != table.X.shape[1]:
            raise UserError(f"{path}: `centroids` have {centroids.shape[1]} columns, X has {table.X.shape[1]}")
    numbers = [None if value is None else value.astype(np.int64) for value in (y, owners)]
    return Dataset(path.stem, table.X, numbers[0], centroids, table.columns, numbers[1])


# Data sets from files

#: What published files call the rows, and what is known about them, where they have other names than a `Dataset`.
_FIELDS = {"X_train": "X", "y_train": "y", "feature_names": "columns", "subject": "owners", "client": "owners"}

_SETTINGS = tuple(
    f"beta{beta}_ppc{rows}_noise{noise}"
    for beta, rows, noise in product(("0.1", "1", "10"), (50, 100, 200), ("1", "1.1", "1.2", "1.3", "1.4", "1.5"))
)


def _from_files(name: str, setting: str, folder: Path) -> Dataset:
    if name == "garst_grid":
        return _garst_grid(setting or _SETTINGS[0], folder)
    arrays = official.read(name, folder, official.OFFICIAL[name].keys)
    if name == "qmnist":
        # The 60000 training digits of MNIST and QMNIST are the same, in the same order.
        digits = arrays.pop("train")
        arrays |= official.read("mnist", folder, ("X_train",)) | {"y": digits[:, 0], "owners": digits[:, 2]}
    return _dataset(name, **{_FIELDS.get(key, key): array for key, array in arrays.items()})


def _garst_grid(setting: str, folder: Path) -> Dataset:
    if setting not in _SETTINGS:
        raise UserError(
            f"data set 'garst_grid' has no setting {setting!r}{did_you_mean(setting, _SETTINGS)}; a setting is "
            "beta{0.1,1,10}_ppc{50,100,200}_noise{1,1.1,1.2,1.3,1.4,1.5}, such as garst_grid:" + _SETTINGS[0]
        )
    keys = tuple(f"{key}_{setting}" for key in ("X", "y", "client"))
    X, y, client = official.read("garst_grid", folder, keys).values()
    return _dataset(f"garst_grid:{setting}", X, y, _grid_centroids(), owners=client)


def _dataset(
    name: str,
    X: Array,
    y: Array | None = None,
    centroids: Array | None = None,
    columns: Iterable[str] | None = None,
    owners: Array | None = None,
) -> Dataset:
    """Return a data set with rows (n, ...) and what is known about them, as it is published."""
    y, owners = (None if known is None else np.ascontiguousarray(known, dtype=np.int64) for known in (y, owners))
    rows = np.ascontiguousarray(X.reshape(len(X), -1), dtype=np.float64)
    centroids = None if centroids is None else centroids.astype(np.float64)
    return Dataset(name, rows, y, centroids, None if columns is None else _distinct(columns), owners)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names with a number behind every repeated one: HAR uses some names for three axes."""
    seen: dict[str, int] = {}
    result = []
    for name in map(str, names):
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(result)


# Data sets that are always at hand


def _sklearn(name: str) -> Dataset:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    return _dataset(name, bunch.data, bunch.target, columns=bunch.feature_names)


def _blobs() -> Dataset:
    from sklearn.datasets import make_blobs

    return _dataset("blobs", *make_blobs(1500, 2, centers=5, random_state=10, return_centers=True))


def _grid16() -> Dataset:
    """Generate the regular synthetic set of Garst and Reinders 2024 (arXiv 2310.01195, sec. 3)."""
    y = np.repeat(np.arange(16), 50)
    noise = np.random.default_rng(16).normal(size=(len(y), 2))
    return Dataset("grid16", _grid_centroids()[y] + noise, y, _grid_centroids())


def _grid_centroids() -> FloatArray:
    return np.array(list(product((-7.5, -2.5, 2.5, 7.5), repeat=2)))


_GENERATED: Mapping[str, tuple[str, Callable[[], Dataset]]] = {
    "digits": ("1797 images of handwritten digits, 64 columns, 10 classes", lambda: _sklearn("digits")),
    "iris": ("150 flowers, 4 columns, 3 species", lambda: _sklearn("iris")),
    "wine": ("178 wines, 13 columns in unlike units, 3 cultivars", lambda: _sklearn("wine")),
    "breast_cancer": ("569 tumours, 30 columns in unlike units, 2 classes", lambda: _sklearn("breast_cancer")),
    "blobs": ("1500 rows, 2 columns, 5 well separated Gaussian clusters (generated)", _blobs),
    "grid16": ("800 rows, 2 columns, 16 Gaussian clusters on a 4 x 4 grid (generated)", _grid16),
}
