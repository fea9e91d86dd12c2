"""`flareclust.run` takes every kind of data, and its public names."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import load
from flareclust.evaluation import metrics
from tests.patience import PATIENCE
from tests.unit.experiment.api_cases import POINTS, by_position, nearest, rows

# --- kinds of data ---


def test_a_name_brings_its_rows_its_k_and_its_truth():
    result = flareclust.run("feca", data="iris", n_sites=3)
    assert (result.algorithm, result.engine, result.seed, result.k, result.n_sites) == ("feca", "inprocess", 0, 3, 3)
    assert result.columns == load("iris").columns
    assert {"ari", "nmi", "purity", "accuracy"} <= set(result.metrics)
    assert result.metrics["ari"] == pytest.approx(metrics.ari(result.labels, load("iris").y))
    assert result.centroids.shape == (result.centroids_found, 4)
    assert (result.centroids_file, result.run_id, result.warnings) == (None, None, [])


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame, np.float32, np.asfortranarray])
def test_rows_in_memory_are_dealt_to_sites(kind):
    X = rows()
    result = flareclust.run("feca", kind(X), k=3, n_sites=2)
    assert sorted(result.sites) == ["site-1", "site-2"]
    assert [len(part) for part in result.sites.values()] == [15, 15]
    np.testing.assert_allclose(by_position(result.centroids), by_position(POINTS), atol=0.6)
    np.testing.assert_array_equal(result.labels, nearest(np.asarray(kind(X), dtype=float), result.centroids))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_file_gives_what_its_rows_give(tmp_path, as_text):
    X = rows()
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()))
    there = flareclust.run("feca", str(path) if as_text else path, k=3, n_sites=2)
    here = flareclust.run("feca", X, k=3, n_sites=2)
    np.testing.assert_array_equal(there.centroids, here.centroids)
    np.testing.assert_array_equal(there.labels, here.labels)
    assert there.columns == ("a", "b")


def test_a_mapping_of_arrays_is_not_partitioned(own):
    result = flareclust.run("feca", own, k=3)
    assert result.n_sites == 4
    for site, X in own.items():
        np.testing.assert_array_equal(result.sites[site], X)
        np.testing.assert_array_equal(result.site_labels[site], nearest(X, result.centroids))


def test_a_mapping_of_files_gives_what_its_rows_give(own, tmp_path):
    files = {}
    for i, (site, X) in enumerate(own.items()):
        files[site] = tmp_path / f"{i}.npy" if i % 2 else str(tmp_path / f"{i}.npy")
        np.save(files[site], X)
    there, here = (flareclust.run("kfed", data, k=3) for data in (files, own))
    np.testing.assert_array_equal(there.centroids, here.centroids)
    np.testing.assert_array_equal(there.labels, here.labels)
    assert set(there.sites) == set(own)


def test_the_order_of_a_mapping_does_not_matter(own):
    backwards = dict(reversed(own.items()))
    for algorithm in ("feca", "kfed", "central"):
        one, other = (flareclust.run(algorithm, data, k=3, seed=5) for data in (own, backwards))
        np.testing.assert_array_equal(one.centroids, other.centroids)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.metrics == other.metrics


@pytest.mark.parametrize("algorithm", ["feca", "central"])
def test_owners_may_be_the_sites(algorithm, shared_data):
    data = load("garst_grid:beta0.1_ppc50_noise1")
    result = flareclust.run(algorithm, data="garst_grid:beta0.1_ppc50_noise1", partition="owners", n_init=4)
    assert (result.n_sites, sorted(result.sites)) == (5, [f"site-{i}" for i in range(1, 6)])
    for number in range(5):
        np.testing.assert_array_equal(result.sites[f"site-{number + 1}"], data.X[data.owners == number])
    np.testing.assert_array_equal(result.labels, nearest(data.X, result.centroids))
    assert result.metrics["ari"] == pytest.approx(metrics.ari(result.labels, data.y))


@pytest.mark.parametrize("algorithm", ["feca", "kfed", "central"])
def test_rows_that_belong_to_no_site_have_no_label_and_count_nowhere(algorithm, shared_data, tmp_path):
    data = load("garst_grid:beta0.1_ppc50_noise1")
    used = data.owners < 2
    result = flareclust.run(
        algorithm,
        data="garst_grid:beta0.1_ppc50_noise1",
        partition="owners:2",
        k=6,
        out=tmp_path / "out",
        **({"labels_by": "nearest"} if algorithm == "kfed" else {}),
    )
    assert result.n_sites == 2
    assert result.labels.shape == data.y.shape
    np.testing.assert_array_equal(result.labels[used], nearest(data.X[used], result.centroids))
    assert (result.labels[~used] == -1).all()
    assert result.metrics["ari"] == pytest.approx(metrics.ari(result.labels[used], data.y[used]))
    gaps = ((data.X[used] - result.centroids[result.labels[used]]) ** 2).sum()
    assert result.metrics["inertia"] == pytest.approx(gaps, rel=1e-9)
    assert len((tmp_path / "out" / "labels.csv").read_text().splitlines()) == 1 + used.sum()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_sites": 4}, "n_sites is 4, and data has 2 sites by name; leave n_sites out"),
        ({"partition": "iid"}, "partition is 'iid', and data has the rows of each site"),
    ],
)
def test_sites_by_name_are_not_split(settings, message):
    with pytest.raises(UserError, match=message):
        flareclust.run("pooled", {"a": np.eye(4), "b": np.eye(4)}, k=2, **settings)


def test_central_on_some_owners_is_central_on_their_rows(shared_data):
    data = load("garst_grid:beta0.1_ppc50_noise1")
    some = flareclust.run("central", data="garst_grid:beta0.1_ppc50_noise1", partition="owners:3", k=5, seed=1)
    alone = flareclust.run("central", data.X[data.owners < 3], k=5, n_sites=1, seed=1)
    np.testing.assert_array_equal(some.centroids, alone.centroids)


def test_data_without_owners_cannot_be_split_by_them():
    with pytest.raises(UserError, match=r"'owners' needs to know whose each row is, .* garst_grid"):
        flareclust.run("feca", data="iris", partition="owners")


def test_principal_components_are_a_setting_of_the_name():
    result = flareclust.run("feca", data="digits:pca10", n_sites=3)
    assert result.centroids.shape[1] == 10
    assert result.k == 10
    assert result.metrics["ari"] > 0.3


# --- imports ---


FRAMES = {"sklearn", "prefect", "mlflow", "pandas", "pyarrow", "matplotlib"}
FILES = {"sklearn", "scipy", "pandas", "pyarrow", "pooch"}

#: What a program does, its code, and what it must not load.
PROGRAMS = {
    "flareclust": ("import flareclust", FRAMES - {"pyarrow"} | {"nvflare", "numpy"}),
    "an executor": ("import flareclust.executors.feca, flareclust.executors.kfed", FRAMES),
    "the controller": ("import flareclust.platform.controller", FRAMES - {"pyarrow"}),
    "the command": ("import flareclust.cli", {"prefect", "mlflow", "sklearn", "nvflare"}),
    "the API": ("import flareclust.api", FRAMES),
    # numba itself imports the bare package scipy.
    "the core": (
        "from flareclust.core import assessment, kernels, lloyd, seeds",
        {"sklearn", "scipy.linalg", "scipy.sparse", "pandas", "prefect", "mlflow", "nvflare", "torch"},
    ),
    "pictures that are not drawn": (
        "from flareclust.experiment.plotting import features, federation, tree",
        {"matplotlib"},
    ),
    "pictures": (
        """
import numpy as np
from flareclust.experiment.plotting import features, federation, tree
federation.federation_picture({"a": np.zeros((1, 2))}, np.zeros((1, 2)))
features.coverage_picture(["a"], ["s"], np.ones((1, 1)), np.zeros((1, 1)))
one = np.zeros(1, dtype=int)
tree.tree_picture(one, one + 1, np.ones(1), np.zeros(2, dtype=int), ["s", "t"], 1)
""",
        {"matplotlib.pyplot"},
    ),
    "data sets in the folder": (
        """
import os, numpy as np
os.environ["FLARECLUST_DATA"] = "."
os.mkdir("s1")
np.savez("s1/s1.npz", X=np.ones((3, 2)), y=np.zeros(3, int), centroids=np.ones((1, 2)))
from flareclust.data.datasets import load
load("s1"), load("grid16")
""",
        FILES,
    ),
    "a table in an npz": (
        """
import numpy as np
np.savez("t.npz", X=np.ones((2, 3)), columns=["a", "b", "c"])
from flareclust.data.tables import read_table
read_table("t.npz")
""",
        FILES - {"scipy"},
    ),
} | {
    f"a run of {algorithm} in its process": (
        f"""
import numpy as np, flareclust
sites = {{f"s{{i}}": np.random.default_rng(i).normal(size=(60, 2)) + 9 * (np.arange(60) % 3)[:, None] for i in range(3)}}
flareclust.run({algorithm!r}, sites, 3)
""",
        FRAMES,
    )
    for algorithm in ("feca", "portfolio", "lloyd")
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_leaves_out_what_it_does_not_need(program, tmp_path):
    code, absent = PROGRAMS[program]
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sorted({absent!r} & set(sys.modules)))"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_every_public_name_is_there_and_others_are_not():
    for name in flareclust.__all__:
        assert getattr(flareclust, name) is not None
    assert set(flareclust.__all__) <= set(dir(flareclust))
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = flareclust.rum


def test_a_data_frame_is_read_by_name(tmp_path):
    import pandas as pd

    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)) * [1, 100], columns=["age", "crp"])
    table.to_csv(tmp_path / "all.csv", index=False)
    result = flareclust.run("kfed", tmp_path / "all.csv", k=3, n_sites=2)
    assert result.columns == ("age", "crp")
    np.testing.assert_array_equal(result.predict(table[["crp", "age"]]), result.predict(table.to_numpy()))
    with pytest.raises(UserError, match="no column 'age'"):
        result.predict(table[["crp"]])
