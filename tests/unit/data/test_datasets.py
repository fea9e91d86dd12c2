"""Data sets come by name with their truth; what is fetched is proved right; what cannot be had is said plainly."""

import gzip
import os
import struct
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
from requests.exceptions import ConnectionError as NoNetwork
from scipy.spatial.distance import cdist

from flareclust._foundation.errors import UserError
from flareclust.data import published as official
from flareclust.data.datasets import Dataset, describe, get, load, names, principal
from flareclust.data.published_formats import content_sha256, idx_array, partition_labels, whole_numbers

STORED = os.environ.get("FLARECLUST_DATA", "")
needs_files = pytest.mark.skipif(
    not STORED, reason="FLARECLUST_DATA does not name a folder with the published data sets"
)

# What the sets' authors state: rows, columns, clusters; and whether true centroids are known.
SHAPES = {
    "digits": (1797, 64, 10, False),
    "iris": (150, 4, 3, False),
    "wine": (178, 13, 3, False),
    "breast_cancer": (569, 30, 2, False),
    "blobs": (1500, 2, 5, True),
    "grid16": (800, 2, 16, True),
}
FILE_SHAPES = {
    **{f"s{i}": (5000, 2, 15, True) for i in (1, 2, 3, 4)},
    "birch1": (100_000, 2, 100, True),
    "birch2": (100_000, 2, 100, True),
    **{f"dim{d}": (1024, int(d), 16, True) for d in ("032", "128", "512", "1024")},
    "har": (10_299, 561, 6, False),
    "femnist": (30_653, 784, None, False),
    "garst_grid": (800, 2, 16, True),
    "cifar10_subset": (5000, 3072, 10, False),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and nobody to fetch from."""

    def refuse(*args: object, **kwargs: object) -> str:
        raise NoNetwork("nobody there")

    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", refuse)
    return tmp_path


def _expect(data: Dataset, n: int, d: int, k: int | None, has_centroids: bool) -> None:
    assert data.X.shape == (n, d)
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert np.isfinite(data.X).all()
    assert data.n_clusters == k
    assert (data.centroids is not None) == has_centroids
    if has_centroids:
        assert data.centroids is not None
        assert data.centroids.shape == (k, d)
        assert data.centroids.dtype == np.float64
    if k is not None:
        assert data.y is not None
        assert data.y.dtype == np.int64
        np.testing.assert_array_equal(np.arange(k), np.unique(data.y))
    for per_row in (data.y, data.owners):
        assert per_row is None or per_row.shape == (n,)
    if data.columns is not None:
        assert len(set(data.columns)) == d


@pytest.mark.parametrize("name", SHAPES)
def test_sets_that_are_always_at_hand_need_no_files(folder: Path, name: str) -> None:
    data = load(name)
    assert data.name == name
    _expect(data, *SHAPES[name])
    np.testing.assert_array_equal(data.X, load(name).X)
    assert (data.columns is None) == (name in ("blobs", "grid16"))
    assert not list(folder.iterdir())


def test_grid16_is_a_unit_gaussian_at_every_point_of_the_grid(folder: Path) -> None:
    data = load("grid16")
    assert data.centroids is not None
    assert data.y is not None
    assert data.centroids[:5].tolist() == [[-7.5, -7.5], [-7.5, -2.5], [-7.5, 2.5], [-7.5, 7.5], [-2.5, -7.5]]
    assert np.bincount(data.y).tolist() == [50] * 16
    noise = data.X - data.centroids[data.y]
    assert noise.std() == pytest.approx(1, abs=0.08)  # the standard error for 1600 numbers is 0.018
    means = np.array([noise[data.y == c].mean(axis=0) for c in range(16)])
    assert np.abs(means).max() < 4.5 / np.sqrt(50)


def test_the_labels_of_blobs_belong_to_the_centroids(folder: Path) -> None:
    data = load("blobs")
    assert data.centroids is not None
    assert (cdist(data.X, data.centroids).argmin(axis=1) == data.y).mean() > 0.99


def test_every_data_set_has_one_line_of_description() -> None:
    assert names() == list(describe())
    assert set(names()) == {*SHAPES, *FILE_SHAPES, "mnist", "qmnist"}
    assert all(text and "\n" not in text for text in describe().values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digit", r"unknown data set 'digit' \(did you mean 'digits'"),
        ("nothing_like_it", r"unknown data set 'nothing_like_it'\. There are digits, iris.*\.npy, \.npz"),
        ("iris:3", "'iris' has no setting '3'"),
        ("garst_grid:beta1_ppc50_noise2", "no setting 'beta1_ppc50_noise2'.*did you mean 'beta1_ppc50_noise1"),
        ("digits:pca", "'digits' has no setting 'pca'; write 'digits', or 'digits:pca2'"),
        ("digits:pca0", "'digits' has 64 columns, so the setting pcaD takes D from 1 to 64; got pca0"),
        ("digits:pca65", "got pca65"),
        ("iris:pca2:pca1", "'iris' has no setting 'pca2'"),
        ("digits:pca1.5", "no setting 'pca1.5'"),
        ("missing.csv", "missing.csv: no such file"),
        ("folder/missing", "no such file"),
    ],
)
def test_unknown_names_say_what_there_is(folder: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(name)


# Tables from files


def test_an_own_npz_may_carry_labels_and_centroids(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "own.npz", X=np.ones((3, 2), np.float32), y=np.array([0, 1, 1], np.uint8), centroids=[[1, 2], [3, 4]]
    )
    data = load(str(tmp_path / "own.npz"))
    _expect(data, 3, 2, 2, True)
    assert data.name == "own"
    (tmp_path / "plain.csv").write_text("a,b\n1,2\n")
    data = load(tmp_path / "plain.csv")
    assert (data.X.tolist(), data.y, data.n_clusters, data.columns) == ([[1, 2]], None, None, ("a", "b"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(4, int)}, r"`y` must hold one integer per row, \(3,\), got int64 of shape \(4,\)"),
        ({"y": np.zeros(3)}, "`y` must hold one integer per row.*got float64"),
        ({"centroids": np.zeros((2, 5))}, "`centroids` have 5 columns, X has 2"),
        ({"centroids": np.full((2, 2), np.nan)}, "`centroids`: 4 cells are missing"),
    ],
)
def test_truth_that_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "own.npz", X=np.ones((3, 2)), **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        load(tmp_path / "own.npz")


# The official formats


def test_partition_files_give_labels_from_zero_below_the_line_of_dashes() -> None:
    assert partition_labels(
        "VQ PARTITIONING 2.0\r\n3\r\n4\r\nDataGen - 1\r\n-----\r\n3\r\n1\r\n1\r\n2\r\n"
    ).tolist() == [2, 0, 0, 1]
    with pytest.raises(ValueError, match="no line of dashes"):
        partition_labels("1\n2\n")
    with pytest.raises(ValueError, match="from 1"):
        partition_labels("-----\n0\n1\n")


def test_text_tables_are_cut_into_columns() -> None:
    assert whole_numbers("    1   22\n  333 4 \n", 2).tolist() == [[1, 22], [333, 4]]
    with pytest.raises(ValueError, match="reshape"):
        whole_numbers("1 2 3", 2)


def test_idx_files_of_bytes_and_integers_are_read() -> None:
    images = struct.pack(">HBB3I", 0, 8, 3, 2, 1, 2) + bytes([1, 2, 3, 255])
    np.testing.assert_array_equal(
        np.array([[[1, 2]], [[3, 255]]], np.uint8), idx_array(gzip.compress(images)), strict=True
    )
    labels = struct.pack(">HBB2I4i", 0, 12, 2, 2, 2, 5, -1, 70000, 0)
    np.testing.assert_array_equal(
        np.array([[5, -1], [70000, 0]], np.int32), idx_array(gzip.compress(labels)), strict=True
    )
    for wrong in (b"", b"\0\0\x0d\x01\0\0\0\0", images[:-1]):
        with pytest.raises(ValueError, match=r"idx|reshape"):
            idx_array(gzip.compress(wrong))


def test_the_content_hash_sees_rows_and_their_truth_but_not_their_order() -> None:
    rng = np.random.default_rng(0)
    X, centroids, y = rng.integers(0, 99, (20, 3)), rng.integers(0, 99, (4, 3)), rng.integers(0, 4, 20)
    expected = content_sha256({"X": X, "y": y, "centroids": centroids})
    order, relabelled = rng.permutation(20), rng.permutation(4)
    other: dict[str, np.ndarray] = {
        "X": X[order].astype(np.int32),
        "y": relabelled[y][order].astype(np.uint8),
        "centroids": centroids[np.argsort(relabelled)].astype(float),
    }
    assert content_sha256(other) == expected
    original: dict[str, np.ndarray] = {"X": X, "y": y % 3, "centroids": centroids}
    for key, array in original.items():
        changed = array.copy()
        changed.flat[0] += 1
        assert content_sha256({**original, key: changed}) != content_sha256(original)


# Fetching


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
    entry = replace(official.OFFICIAL[name], content=content_sha256(arrays))
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
    assert data.y is not None
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
    assert data.y is not None
    assert data.owners is not None
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


def test_an_npz_that_lacks_an_array_is_refused(folder: Path) -> None:
    (folder / "s1").mkdir()
    np.savez(folder / "s1" / "s1.npz", X=np.ones((3, 2)))
    with pytest.raises(UserError, match="lacks the arrays 'y', 'centroids'"):
        load("s1")


def test_generated_sets_can_be_written_and_read_as_files(folder: Path) -> None:
    for name in ("iris", "grid16"):
        path = get(name, folder)
        assert path == folder / name / f"{name}.npz"
        stored, data = load(path), load(name)
        np.testing.assert_array_equal(data.X, stored.X)
        np.testing.assert_array_equal(data.y, stored.y)
        assert (stored.columns, stored.n_clusters) == (data.columns, data.n_clusters)


def test_a_folder_that_cannot_be_written_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot be written.*choose another folder"):
        get("iris", tmp_path / "file")


def test_reading_from_the_folder_imports_neither_sklearn_nor_pooch_nor_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    np.savez(tmp_path / "s1" / "s1.npz", X=np.ones((3, 2)), y=np.zeros(3, int), centroids=np.ones((1, 2)))
    code = (
        "import sys; from flareclust.data.datasets import load; load('s1'); load('grid16'); "
        "print([m for m in ('pandas', 'pyarrow', 'sklearn', 'scipy', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FLARECLUST_DATA": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


# The published files


@needs_files
@pytest.mark.parametrize("name", FILE_SHAPES)
def test_published_files_have_the_stated_shape_and_content(name: str) -> None:
    data = load(name, verify=True)
    _expect(data, *FILE_SHAPES[name])
    assert (data.owners is not None) == (name in ("har", "femnist", "garst_grid"))


@needs_files
@pytest.mark.parametrize("name", [name for name, entry in official.OFFICIAL.items() if entry.content])
def test_the_content_hashes_are_those_of_the_published_files(name: str) -> None:
    from flareclust.data.npy_files import npz_arrays

    entry = official.OFFICIAL[name]
    assert content_sha256(npz_arrays(Path(STORED) / entry.file, entry.keys)) == entry.content


@needs_files
def test_the_labels_of_s1_belong_to_the_author_centroids() -> None:
    data = load("s1")
    assert data.centroids is not None
    assert (cdist(data.X, data.centroids).argmin(axis=1) == data.y).mean() == pytest.approx(0.993, abs=0.001)


@needs_files
def test_qmnist_names_the_writers_of_mnist() -> None:
    data = load("qmnist", verify=True)
    _expect(data, 60_000, 784, 10, False)
    assert data.owners is not None
    assert len(np.unique(data.owners)) == 539
    mnist = load("mnist")
    np.testing.assert_array_equal(mnist.y, data.y)
    assert (mnist.X.min(), mnist.X.max()) == (0, 255)


@needs_files
def test_har_columns_have_distinct_names() -> None:
    columns = load("har").columns
    assert columns is not None
    assert columns[0] == "tBodyAcc-mean()-X"
    assert len(set(columns)) == 561


@needs_files
def test_every_setting_of_garst_grid_is_a_split_of_the_grid() -> None:
    data = load("garst_grid:beta10_ppc200_noise1.5")
    assert data.n_clusters == 16
    assert data.X.shape == (3200, 2)
    assert data.owners is not None
    assert data.y is not None
    assert data.centroids is not None
    assert np.unique(data.owners).tolist() == [0, 1, 2, 3, 4]
    means = np.array([data.X[data.y == c].mean(axis=0) for c in range(16)])
    assert np.abs(means - data.centroids).max() < 4.5 * 1.5 / np.sqrt(200)


# Principal components


@pytest.mark.parametrize(("name", "components"), [("digits", 20), ("digits", 61), ("iris", 4), ("wine", 1)])
def test_pca_gives_the_scores_of_scikit_learns_up_to_signs(name: str, components: int) -> None:
    from sklearn.decomposition import PCA

    whole, data = load(name), load(f"{name}:pca{components}")
    expected = PCA(components, svd_solver="full").fit_transform(whole.X)
    # Three columns of digits are constant, so 61 components are all that there are.
    signs = np.sign((expected * data.X).sum(axis=0))
    np.testing.assert_allclose(data.X, expected * signs, atol=1e-8 * np.abs(expected).max())
    assert data.name == f"{name}:pca{components}"
    assert data.columns is None
    np.testing.assert_array_equal(data.y, whole.y)
    _expect(data, len(whole.X), components, whole.n_clusters, False)


def test_all_components_keep_the_distances_and_the_true_centroids() -> None:
    whole, turned = load("grid16"), load("grid16:pca2")
    assert whole.centroids is not None
    assert turned.centroids is not None
    np.testing.assert_allclose(cdist(turned.X, turned.centroids), cdist(whole.X, whole.centroids), atol=1e-12)
    np.testing.assert_allclose(turned.X.mean(axis=0), 0, atol=1e-12)


def test_the_components_have_a_sign_of_their_own() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1, 5, 25] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    one, other = principal(Dataset("own", X), 3), principal(Dataset("own", X[::-1].copy()), 3)
    np.testing.assert_allclose(other.X[::-1], one.X, atol=1e-9)
    turn = np.linalg.lstsq(X - X.mean(axis=0), one.X, rcond=None)[0]
    assert (turn[np.abs(turn).argmax(axis=0), range(3)] > 0).all()
    assert one.X.std(axis=0)[0] > one.X.std(axis=0)[1] > one.X.std(axis=0)[2]


def test_a_constant_table_has_components_of_zero() -> None:
    data = principal(Dataset("flat", np.full((5, 3), 7.0)), 2)
    np.testing.assert_array_equal(np.zeros((5, 2)), data.X)


@needs_files
def test_pca_comes_after_a_data_sets_own_setting() -> None:
    first, named = load("garst_grid:pca1"), load("garst_grid:beta0.1_ppc50_noise1:pca1")
    assert named.name == first.name == "garst_grid:beta0.1_ppc50_noise1:pca1"
    np.testing.assert_array_equal(first.X, named.X)
    assert named.X.shape == (800, 1)
    assert named.centroids is not None
    assert named.centroids.shape == (16, 1)
    np.testing.assert_array_equal(named.owners, load("garst_grid").owners)
    with pytest.raises(UserError, match="no setting 'beta9'"):
        load("garst_grid:beta9:pca1")
