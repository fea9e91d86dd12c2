"""The formats of officially published data sets, read into the arrays of an npz file.

Converters take the official files by name; where these are not what they should be, `UNREADABLE` lists what is raised.
"""

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flareclust._foundation.typing import Array, IntArray

Files = Mapping[str, Path]
Arrays = dict[str, Array]

UNREADABLE = (ValueError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


def content_sha256(arrays: Mapping[str, Array]) -> str:
    """Return a hash of what the arrays say.

    With true centroids it is over the set of pairs (row, true centroid of the row): the text files of these data sets
    circulate in several row orders, which do not change it. Otherwise it is over the arrays as they are, by name.
    """
    whole = hashlib.sha256()
    if "centroids" in arrays:
        pairs = np.hstack([arrays["X"], arrays["centroids"][arrays["y"]]]).astype("<f8")
        for line in sorted(pair.tobytes() for pair in pairs):
            whole.update(line)
        return whole.hexdigest()
    for key in sorted(arrays):
        whole.update(f"{key} {arrays[key].shape}".encode())
        whole.update(np.ascontiguousarray(arrays[key], dtype="<i4").data)
    return whole.hexdigest()


def whole_numbers(text: str, columns: int) -> IntArray:
    """Return numbers separated by blanks and line ends as (n, columns)."""
    return np.array(text.split(), dtype=np.int64).reshape(-1, columns)


def partition_labels(text: str) -> IntArray:
    """Return (n,) labels from 0 of a partition file: a header, a line of dashes, one label from 1 per line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    dashes = next((i for i, line in enumerate(lines) if set(line) == {"-"}), None)
    if dashes is None:
        raise ValueError("no line of dashes ends the header")
    labels = np.array(lines[dashes + 1 :], dtype=np.int64) - 1
    if labels.size and labels.min() < 0:
        raise ValueError("labels must count from 1")
    return labels


def idx_array(packed: bytes) -> Array:
    """Return the array of a gzipped idx file of bytes or 32-bit integers."""
    data = gzip.decompress(packed)
    stored, native = {b"\0\0\x08": (">u1", np.uint8), b"\0\0\x0c": (">i4", np.int32)}.get(data[:3], ("", np.uint8))
    if not stored or len(data) < 4:
        raise ValueError("not an idx file of bytes or 32-bit integers")
    axes = data[3]
    shape = np.frombuffer(data, dtype=">u4", count=axes, offset=4).astype(np.int64)
    array: Array = np.frombuffer(data, dtype=stored, offset=4 + 4 * axes).reshape(shape).astype(native)
    return array


def s_set(name: str, files: Files) -> Arrays:
    """Convert s1 ... s4: rows as text; author centroids and labels in a zip file shared by the four."""
    with zipfile.ZipFile(files["s-originals.zip"]) as originals:
        member = {Path(path).name: path for path in originals.namelist()}
        centroids = whole_numbers(originals.read(member[f"{name}-cb.txt"]).decode(), 2)
        y = partition_labels(originals.read(member[f"{name}-label.pa"]).decode())
    return _labelled(whole_numbers(files[f"{name}.txt"].read_text(), 2), y, centroids)


def birch_set(name: str, files: Files) -> Arrays:
    """Convert birch1 or birch2: rows and author centroids as text; the authors' labels are the nearest centroids."""
    X = whole_numbers(files[f"{name}.txt"].read_text(), 2)
    centroids = whole_numbers(files[f"b{name[-1]}-gt.txt"].read_text(), 2)
    y = np.empty(len(X), dtype=np.int64)
    for rows in np.array_split(np.arange(len(X)), -(-len(X) // 10_000)):
        y[rows] = ((X[rows, None, :] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    return _labelled(X, y, centroids)


def dim_set(name: str, files: Files) -> Arrays:
    """Convert dim032 ... dim1024: rows and labels as text; with no centroids published, they are the label means."""
    X = whole_numbers(files[f"{name}.txt"].read_text(), int(name.removeprefix("dim")))
    y = partition_labels(files[f"{name}.pa"].read_text())
    if len(y) != len(X):
        raise ValueError(f"{len(y)} labels for {len(X)} rows")
    return _labelled(X, y, np.array([X[y == c].mean(axis=0) for c in range(y.max() + 1)]))


def mnist(files: Files) -> Arrays:
    """Convert the training images and labels of MNIST."""
    images, labels = (files[f"train-{part}-ubyte.gz"] for part in ("images-idx3", "labels-idx1"))
    return {"X_train": idx_array(images.read_bytes()), "y_train": idx_array(labels.read_bytes())}


def qmnist(files: Files) -> Arrays:
    """Convert the extended labels of QMNIST's training digits, (60000, 8)."""
    return {"train": idx_array(files["qmnist-train-labels-idx2-int.gz"].read_bytes())}


def _labelled(X: IntArray, y: IntArray, centroids: Array) -> Arrays:
    if len(y) != len(X) or y.max() >= len(centroids):
        raise ValueError(f"{len(y)} labels up to {y.max() + 1} for {len(X)} rows and {len(centroids)} centroids")
    return {"X": X.astype(np.int32), "y": y.astype(np.uint8), "centroids": centroids}
