"""Data sets that are read from files: where the files lie, where they come from, and what proves them right.

Converters take the official files by name; where these are not what they should be, `_UNREADABLE` lists what is raised.
"""

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, IntArray
from flareclust.data.file_formats import listed
from flareclust.data.npy_files import npz_arrays

_Files = Mapping[str, Path]
_Arrays = dict[str, Array]

_UNREADABLE = (ValueError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


def _content_sha256(arrays: Mapping[str, Array]) -> str:
    """Return a hash of what the arrays say.

    With true centroids it is over the set of pairs (row, true centroid of the row): the text files of these data sets
    circulate in several row orders, which do not change it. Otherwise it is over the arrays as they are, by name.
    """
    whole = sha256()
    if "centroids" in arrays:
        pairs = np.hstack([arrays["X"], arrays["centroids"][arrays["y"]]]).astype("<f8")
        for line in sorted(pair.tobytes() for pair in pairs):
            whole.update(line)
        return whole.hexdigest()
    for key in sorted(arrays):
        whole.update(f"{key} {arrays[key].shape}".encode())
        whole.update(np.ascontiguousarray(arrays[key], dtype="<i4").data)
    return whole.hexdigest()


def _whole_numbers(text: str, columns: int) -> IntArray:
    """Return numbers separated by blanks and line ends as (n, columns)."""
    return np.array(text.split(), dtype=np.int64).reshape(-1, columns)


def _partition_labels(text: str) -> IntArray:
    """Return (n,) labels from 0 of a partition file: a header, a line of dashes, one label from 1 per line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    dashes = next((i for i, line in enumerate(lines) if set(line) == {"-"}), None)
    if dashes is None:
        raise ValueError("no line of dashes ends the header")
    labels = np.array(lines[dashes + 1 :], dtype=np.int64) - 1
    if labels.size and labels.min() < 0:
        raise ValueError("labels must count from 1")
    return labels


def _idx_array(packed: bytes) -> Array:
    """Return the array of a gzipped idx file of bytes or 32-bit integers."""
    data = gzip.decompress(packed)
    stored, native = {b"\0\0\x08": (">u1", np.uint8), b"\0\0\x0c": (">i4", np.int32)}.get(data[:3], ("", np.uint8))
    if not stored or len(data) < 4:
        raise ValueError("not an idx file of bytes or 32-bit integers")
    axes = data[3]
    shape = np.frombuffer(data, dtype=">u4", count=axes, offset=4).astype(np.int64)
    return np.asarray(np.frombuffer(data, dtype=stored, offset=4 + 4 * axes).reshape(shape).astype(native))


def _s_set(name: str, files: _Files) -> _Arrays:
    """Convert s1 ... s4: rows as text; author centroids and labels in a zip file shared by the four."""
    with zipfile.ZipFile(files["s-originals.zip"]) as originals:
        member = {Path(path).name: path for path in originals.namelist()}
        centroids = _whole_numbers(originals.read(member[f"{name}-cb.txt"]).decode(), 2)
        y = _partition_labels(originals.read(member[f"{name}-label.pa"]).decode())
    return _labelled(_whole_numbers(files[f"{name}.txt"].read_text(), 2), y, centroids)


def _birch_set(name: str, files: _Files) -> _Arrays:
    """Convert birch1 or birch2: rows and author centroids as text; the authors' labels are the nearest centroids."""
    X = _whole_numbers(files[f"{name}.txt"].read_text(), 2)
    centroids, y = _whole_numbers(files[f"b{name[-1]}-gt.txt"].read_text(), 2), np.empty(len(X), dtype=np.int64)
    for rows in np.array_split(np.arange(len(X)), -(-len(X) // 10_000)):
        y[rows] = ((X[rows, None, :] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    return _labelled(X, y, centroids)


def _dim_set(name: str, files: _Files) -> _Arrays:
    """Convert dim032 ... dim1024: rows and labels as text; with no centroids published, they are the label means."""
    X = _whole_numbers(files[f"{name}.txt"].read_text(), int(name.removeprefix("dim")))
    y = _partition_labels(files[f"{name}.pa"].read_text())
    if len(y) != len(X):
        raise ValueError(f"{len(y)} labels for {len(X)} rows")
    return _labelled(X, y, np.array([X[y == c].mean(axis=0) for c in range(y.max() + 1)]))


def _idx_set(keys: Sequence[str], files: _Files) -> _Arrays:
    """Convert MNIST's images and labels, or QMNIST's extended labels (60000, 8): an array per file."""
    return {key: _idx_array(file.read_bytes()) for key, file in zip(keys, files.values(), strict=True)}


def _labelled(X: IntArray, y: IntArray, centroids: Array) -> _Arrays:
    if len(y) != len(X) or y.max() >= len(centroids):
        raise ValueError(f"{len(y)} labels up to {y.max() + 1} for {len(X)} rows and {len(centroids)} centroids")
    return {"X": X.astype(np.int32), "y": y.astype(np.uint8), "centroids": centroids}


@dataclass(frozen=True)
class _Official:
    """A data set kept in an npz file.

    Attributes:
        text: one line of description.
        file: the npz file inside the data folder.
        keys: the arrays it must hold.
        address: where the data are published.
        convert: makes the arrays from the official files; None where this version cannot.
        downloads: the official files that `convert` needs: name and, where known, pooch's form of the hash.
        content: `_content_sha256` of the arrays, where `convert` makes them.
        sha256: of the npz file, where nothing is known of its content.
    """

    text: str
    file: str
    keys: tuple[str, ...]
    address: str
    convert: Callable[[_Files], _Arrays] | None = None
    downloads: tuple[tuple[str, str | None], ...] = ()
    content: str = ""
    sha256: str = ""


#: What the data sets of these families are, how they are converted, and the second file that they come in.
_S = "5000 rows, 2 columns, 15 Gaussian clusters, {} overlap (Fränti and Virmajoki 2006)", _s_set, "s-originals.zip"
_BIRCH = "100000 rows, 2 columns, 100 clusters {} (Zhang and others 1997)", _birch_set, "b{}-gt.txt"
_DIM = "1024 rows, {} columns, 16 well separated Gaussian clusters (Fränti and others 2006)", _dim_set, "{}.pa"


def _sipu(
    name: str, family: tuple[str, Callable[[str, _Files], _Arrays], str], kind: object, content: str
) -> _Official:
    text, convert, truth = family
    truth = truth.format(name[-1] if family is _BIRCH else name)
    return _Official(
        text=text.format(kind),
        file=f"{name}/{name}.npz",
        keys=("X", "y", "centroids"),
        address="http://cs.uef.fi/sipu/datasets/",
        convert=partial(convert, name),
        downloads=((f"{name}.txt", None), (truth, None)),
        content=content,
    )


OFFICIAL: Mapping[str, _Official] = {
    "s1": _sipu("s1", _S, "hardly any", "76b25b4c285079d9333dbb278c496507b78df92df8d33e262e60829cf2529e11"),
    "s2": _sipu("s2", _S, "little", "861c2ccd02774108529e688b5338a511c93c365184fd6260399212ab3569e1fe"),
    "s3": _sipu("s3", _S, "moderate", "42ea1fc724ce03de1dcb347ec8ccd5ddfd9240c94da2bd07ca6f14e792e791e0"),
    "s4": _sipu("s4", _S, "strong", "a29443b3fe49af4513c8fa36790ff3cd30c04f1b09b45b635a6074c67627bac1"),
    "birch1": _sipu(
        "birch1", _BIRCH, "on a regular grid", "4f65f470924a4506dbcb56c257c46ea5ac0459cffffd321b4c9025ea501a6886"
    ),
    "birch2": _sipu(
        "birch2", _BIRCH, "along a sine curve", "a7a8bb72b9b9bf4276758125c662eb6bf8214dd45d8faf70ba1dd0d8c8bb4976"
    ),
    "dim032": _sipu("dim032", _DIM, 32, "fb7cb087cc79d05f1a38718c94ef1e9423c6f0020885999cfc42619d00e7d829"),
    "dim128": _sipu("dim128", _DIM, 128, "45693f967c35fd550493b9584b6872cbd98ebc454338361269fe4e74d3b3c2ad"),
    "dim512": _sipu("dim512", _DIM, 512, "55def496d0e389324f4634069d45fe50decb92ea03be9932d8c5394ddbfa06d2"),
    "dim1024": _sipu("dim1024", _DIM, 1024, "b86f5c8b079a22c209ae75fa351c2e3aeede978fe68e90451c936a3ede911ad5"),
    "mnist": _Official(
        text="60000 training images of handwritten digits, 784 columns, 10 classes",
        file="mnist/mnist.npz",
        keys=("X_train", "y_train"),
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        convert=partial(_idx_set, ("X_train", "y_train")),
        downloads=(
            ("train-images-idx3-ubyte.gz", "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            ("train-labels-idx1-ubyte.gz", "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ),
        content="7a2ea3c22dbe8343b2b97f4f534b0fca77ac0c9aa48fc4f6ed1faefc819f1cd7",
    ),
    "qmnist": _Official(
        text="mnist with the writer of each digit from QMNIST as the row's owner, 539 writers",
        file="qmnist/qmnist_labels.npz",
        keys=("train",),
        address="https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
        convert=partial(_idx_set, ("train",)),
        downloads=(("qmnist-train-labels-idx2-int.gz", "md5:0058f8dd561b90ffdd0f734c6a30e5e4"),),
        content="417cd1f6e2143de81d319ba0d373457f4edc1b3cb9222e5795ad6b452680220f",
    ),
    "har": _Official(
        text="10299 windows of smartphone sensors, 561 features (recomputed), 6 activities, 30 subjects as owners",
        file="har/har561_rebuilt.npz",
        keys=("X", "y", "subject", "feature_names"),
        sha256="2dccadeca39fe26acd385b07f1286233b6587a291e51525bd894524336380481",
        address="https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
    ),
    "femnist": _Official(
        text="30653 digits of 250 writers as owners, 784 columns, no classes (Garst and Reinders 2024)",
        file="femnist_garst/femnist_garst.npz",
        keys=("X", "client"),
        sha256="7a2d9dd2c2b61b714933da879686016bd60c9c289b039f5642b0e07881e5a2f2",
        address="https://github.com/swiergarst/fedKMeans",
    ),
    "garst_grid": _Official(
        text="grid16 as published with its 5 clients as owners; garst_grid:beta1_ppc200_noise1.3 picks a setting",
        file="garst_grid/garst_grid.npz",
        keys=(),
        sha256="b73fa7fdf8659f18e82441d82f74004fc43060c964ffbdf8936996571485c054",
        address="https://github.com/swiergarst/fedKMeans",
    ),
    "cifar10_subset": _Official(
        text="5000 test images of CIFAR-10, 3072 columns, 10 classes",
        file="cifar10_subset/cifar10_subset.npz",
        keys=("X", "y"),
        sha256="6e30e679cd972064999ea1b31400895b24595380b2f6680b5b79f67279ae9787",
        address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
}


def data_folder() -> Path:
    """Return the folder of the data sets: $FLARECLUST_DATA, or else the user's cache."""
    if named := os.environ.get("FLARECLUST_DATA"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("flareclust"))


def read(name: str, folder: Path, keys: tuple[str, ...]) -> dict[str, Array]:
    """Return the arrays `keys` of a data set, fetched where it is not in the folder; UserError where it cannot be, or lacks one."""
    path = folder / OFFICIAL[name].file
    if not path.is_file():
        fetch(name, folder)
    arrays = npz_arrays(path, keys)
    if missing := [key for key in keys if key not in arrays]:
        raise UserError(f"data set {name!r}: {path} lacks the arrays {listed(missing)}; delete it to fetch it anew")
    return arrays


def fetch(name: str, folder: Path) -> Path:
    """Download those official files that are not in `folder`, prove all right, and write the npz file.

    UserError where there is no network or no way to convert the files, or they are not the published ones.
    """
    import pooch

    official = OFFICIAL[name]
    target = folder / official.file
    if official.convert is None:
        keys = official.keys or ("X_S", "y_S", "client_S for each setting S")
        raise UserError(
            f"data set {name!r}: no file {target}. It cannot be fetched, because this version does not convert the "
            f"published form ({official.address}). Set FLARECLUST_DATA to a folder that holds {official.file}, or put "
            f"one there with the arrays {listed(keys)}"
        )
    files: dict[str, Path] = {}
    for file, known_hash in official.downloads:
        address = official.address + file
        try:
            files[file] = Path(pooch.retrieve(address, known_hash, fname=file, path=target.parent))
        except (OSError, ValueError) as error:
            wanted = " and ".join(other for other, _ in official.downloads)
            raise UserError(
                f"data set {name!r}: no file {target}, and {address} could not be fetched ({type(error).__name__}). "
                f"Put {wanted} from {official.address} into the folder {target.parent}, or set FLARECLUST_DATA to a "
                f"folder that holds {official.file}"
            ) from error
    try:
        arrays = official.convert(files)
        right = _content_sha256(arrays) == official.content
    except _UNREADABLE:
        right = False
    if not right:
        raise UserError(
            f"data set {name!r}: {' and '.join(map(str, files.values()))} are not the published data, or damaged; "
            "delete them and try again"
        )
    return write(target, arrays)


def verify(name: str, path: Path) -> None:
    """Raise UserError unless an npz file holds the data set as published."""
    official = OFFICIAL[name]
    if official.content:
        arrays = npz_arrays(path, official.keys)
        right = len(arrays) == len(official.keys) and _content_sha256(arrays) == official.content
    else:
        right = sha256(path.read_bytes()).hexdigest() == official.sha256
    if not right:
        raise UserError(f"data set {name!r}: {path} does not hold the published data; delete it to fetch it anew")


def write(target: Path, arrays: Mapping[str, Array]) -> Path:
    """Write an npz file, in such a way that nobody ever sees half of it; UserError where the folder cannot be written."""
    part = target.with_name(f"{target.stem}.{os.getpid()}.part.npz")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]
        part.replace(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}; choose another folder") from error
    return target
