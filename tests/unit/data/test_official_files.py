"""Official files are converted, fetched from their address, and proved right."""

import gzip
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
from requests.exceptions import ConnectionError as NoNetwork

from flareclust._foundation.errors import UserError
from flareclust.data import published as official
from flareclust.data.datasets import get, load
from flareclust.data.published import _content_sha256


def _s1_files(folder: Path) -> dict[str, np.ndarray]:
    """Write a made-up s1 of four rows in the official formats, and return its arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s1.txt").write_text("    10    20\n    11    21\n    90    80\n    91    81\n")
    with zipfile.ZipFile(folder / "s-originals.zip", "w") as originals:
        originals.writestr("s-originals/s1-cb.txt", "10 20 \n90 80 \n")
        originals.writestr("s-originals/s1-label.pa", "VQ PARTITIONING 2.0\n2\n4\nDataGen\n------\n1\n1\n2\n2\n")
    return {
        "X": np.array([[10, 20], [11, 21], [90, 80], [91, 81]]),
        "y": np.array([0, 0, 1, 1]),
        "centroids": np.array([[10, 20], [90, 80]]),
    }


def _declare(monkeypatch: pytest.MonkeyPatch, name: str, arrays: dict[str, np.ndarray]) -> None:
    entry = replace(official.OFFICIAL[name], content=_content_sha256(arrays))
    monkeypatch.setattr(official, "OFFICIAL", {**official.OFFICIAL, name: entry})


def test_official_files_in_the_folder_are_converted_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    arrays = _s1_files(tmp_path / "s1")
    _declare(monkeypatch, "s1", arrays)
    data = load("s1", verify=True)
    np.testing.assert_array_equal(arrays["X"], data.X)
    np.testing.assert_array_equal(arrays["y"], data.y)
    np.testing.assert_array_equal(arrays["centroids"], data.centroids)
    for left in ("s1.txt", "s-originals.zip"):
        (tmp_path / "s1" / left).unlink()
    np.testing.assert_array_equal(arrays["X"], load("s1").X)  # from the npz written by the first load
    assert [path.name for path in (tmp_path / "s1").iterdir()] == ["s1.npz"]


def test_official_files_are_asked_for_at_their_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(monkeypatch, "s1", _s1_files(tmp_path / "server"))
    asked = []

    def retrieve(url: str, known_hash: str | None, fname: str, path: Path) -> str:
        asked.append((url, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        return str((tmp_path / "server" / fname).rename(path / fname))

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert get("s1", tmp_path / "data") == tmp_path / "data" / "s1" / "s1.npz"
    sipu = "http://cs.uef.fi/sipu/datasets/"
    assert asked == [(sipu + "s1.txt", None), (sipu + "s-originals.zip", None)]


def test_birch_labels_are_the_nearest_centroids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    (tmp_path / "birch2").mkdir()
    (tmp_path / "birch2" / "birch2.txt").write_text("0 0\n9 9\n1 0\n")
    (tmp_path / "birch2" / "b2-gt.txt").write_text("10 10\n0 1\n")
    X, centroids = np.array([[0, 0], [9, 9], [1, 0]]), np.array([[10, 10], [0, 1]])
    _declare(monkeypatch, "birch2", {"X": X, "y": np.array([1, 0, 1]), "centroids": centroids})
    data = load("birch2")
    assert data.y.tolist() == [1, 0, 1]


def test_dim_centroids_are_the_label_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    (tmp_path / "dim032").mkdir()
    X = np.arange(96).reshape(3, 32)
    (tmp_path / "dim032" / "dim032.txt").write_text("\n".join(" ".join(map(str, row)) for row in X))
    (tmp_path / "dim032" / "dim032.pa").write_text("VQ PARTITIONING 2.0\n2\n3\n----\n1\n1\n2\n")
    means = np.array([X[:2].mean(axis=0), X[2]])
    _declare(monkeypatch, "dim032", {"X": X, "y": np.array([0, 0, 1]), "centroids": means})
    np.testing.assert_array_equal(means, load("dim032").centroids)


def test_mnist_and_qmnist_share_images_and_have_known_hashes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, digits = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.array([5, 0, 4], np.uint8)
    labels = np.array([[5, 4, 2154, 59], [0, 0, 3000, 1], [4, 4, 2154, 60]], np.int32)
    packed = {
        "train-images-idx3-ubyte.gz": struct.pack(">HBB3I", 0, 8, 3, 3, 2, 2) + images.tobytes(),
        "train-labels-idx1-ubyte.gz": struct.pack(">HBBI", 0, 8, 1, 3) + digits.tobytes(),
        "qmnist-train-labels-idx2-int.gz": struct.pack(">HBB2I", 0, 12, 2, 3, 4) + labels.astype(">i4").tobytes(),
    }
    hashes = []

    def retrieve(url: str, known_hash: str | None, fname: str, path: Path) -> str:
        hashes.append(known_hash)
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(gzip.compress(packed[fname]))
        return str(path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    _declare(monkeypatch, "mnist", {"X_train": images, "y_train": digits})
    _declare(monkeypatch, "qmnist", {"train": labels})
    data = load("qmnist")
    assert data.X.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (data.y.tolist(), data.owners.tolist()) == ([5, 0, 4], [2154, 3000, 2154])
    assert load("mnist").X.tolist() == data.X.tolist()
    assert len(hashes) == 3
    assert all(known is not None for known in hashes)


@pytest.mark.parametrize("reason", [NoNetwork("nobody there"), ValueError("hash"), PermissionError("no")])
def test_without_network_the_file_the_address_and_the_folder_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reason: Exception
) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise reason

    monkeypatch.setattr(pooch, "retrieve", refuse)
    with pytest.raises(UserError) as caught:
        load("s2")
    text = str(caught.value)
    assert str(folder / "s2" / "s2.npz") in text
    assert "http://cs.uef.fi/sipu/datasets/s2.txt could not be fetched" in text
    assert (
        f"Put s2.txt and s-originals.zip from http://cs.uef.fi/sipu/datasets/ into the folder {folder / 's2'}" in text
    )
    assert type(reason).__name__ in text


@pytest.mark.parametrize("name", ["har", "femnist", "garst_grid", "cifar10_subset"])
def test_sets_that_cannot_be_converted_say_where_the_file_belongs(folder: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be fetched") as caught:
        load(name)
    assert str(folder / official.OFFICIAL[name].file) in str(caught.value)
    assert "https://" in str(caught.value)
    assert "FLARECLUST_DATA" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [("s1.txt", "1 2\n3 4\n"), ("s1.txt", "1 2 3\n"), ("s1.txt", "<html>"), ("s-originals.zip", "<html>")],
)
def test_official_files_that_are_not_the_published_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    _declare(monkeypatch, "s1", _s1_files(tmp_path / "s1"))
    (tmp_path / "s1" / file).write_text(text)
    with pytest.raises(
        UserError, match=r"s1.txt and .*s-originals.zip are not the published data, or damaged; delete them"
    ):
        load("s1")
    assert not (tmp_path / "s1" / "s1.npz").exists()


def test_a_changed_npz_is_found_out_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    arrays = _s1_files(tmp_path / "s1")
    _declare(monkeypatch, "s1", arrays)
    np.savez(tmp_path / "s1" / "s1.npz", X=arrays["X"], y=1 - arrays["y"], centroids=arrays["centroids"])
    assert load("s1").n_clusters == 2
    for check in (lambda: load("s1", verify=True), lambda: get("s1")):
        with pytest.raises(UserError, match="does not hold the published data"):
            check()


@pytest.mark.parametrize("lacking", ["X", "y", "centroids"])
def test_an_npz_without_one_of_the_arrays_is_not_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    arrays = _s1_files(tmp_path / "s1")
    _declare(monkeypatch, "s1", arrays)
    np.savez(tmp_path / "s1" / "s1.npz", **{key: array for key, array in arrays.items() if key != lacking})
    with pytest.raises(UserError, match="does not hold the published data"):
        get("s1", tmp_path)


def test_an_npz_of_other_bytes_is_not_the_published_one_where_its_content_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "femnist_garst").mkdir()
    np.savez(tmp_path / "femnist_garst" / "femnist_garst.npz", X=np.ones((2, 3)), client=np.arange(2))
    with pytest.raises(UserError, match="does not hold the published data"):
        get("femnist", tmp_path)
