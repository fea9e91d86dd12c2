"""`flareclust.run`: every kind of data, labels in the order of the rows, plain errors, tracking in this process."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.data.datasets import load
from flareclust.evaluation.metrics import ari
from flareclust.experiment import run as experiment
from flareclust.tracking.runs import Tracker

POINTS = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


def rows(seed=0, n=30):
    """n rows, shuffled, around the three points."""
    rng = np.random.default_rng(seed)
    X = np.repeat(POINTS, n // 3, axis=0) + rng.normal(0, 0.5, (n, 2))
    return rng.permutation(X)


def nearest(X, centroids):
    return ((X[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


def by_position(centroids):
    return centroids[np.lexsort(np.round(centroids).T)]


@pytest.fixture
def own():
    return {f"site-{name}": rows(i) for i, name in enumerate("abcd")}


# --- kinds of data ---


def test_a_name_brings_its_rows_its_k_and_its_truth():
    result = flareclust.run("feca", data="iris", clients=3)
    assert (result.algorithm, result.engine, result.seed, result.k, result.clients) == ("feca", "inprocess", 0, 3, 3)
    assert result.columns == load("iris").columns
    assert {"ari", "nmi", "purity", "accuracy"} <= set(result.metrics)
    assert result.metrics["ari"] == pytest.approx(ari(result.labels, load("iris").y))
    assert result.centroids.shape == (result.centroids_found, 4)
    assert (result.centroids_file, result.run_id, result.warnings) == (None, None, [])


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame, np.float32, np.asfortranarray])
def test_rows_in_memory_are_dealt_to_sites(kind):
    X = rows()
    result = flareclust.run("feca", kind(X), k=3, clients=2)
    assert sorted(result.sites) == ["site-1", "site-2"]
    assert [len(part) for part in result.sites.values()] == [15, 15]
    np.testing.assert_allclose(by_position(result.centroids), by_position(POINTS), atol=0.6)
    np.testing.assert_array_equal(result.labels, nearest(np.asarray(kind(X), dtype=float), result.centroids))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_file_gives_what_its_rows_give(tmp_path, as_text):
    X = rows()
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n" + "".join(f"{a!r},{b!r}\n" for a, b in X.tolist()))
    there = flareclust.run("feca", str(path) if as_text else path, k=3, clients=2)
    here = flareclust.run("feca", X, k=3, clients=2)
    np.testing.assert_array_equal(there.centroids, here.centroids)
    np.testing.assert_array_equal(there.labels, here.labels)
    assert there.columns == ("a", "b")


def test_a_mapping_of_arrays_is_not_partitioned(own):
    result = flareclust.run("feca", own, k=3)
    assert result.clients == 4
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
    assert (result.clients, sorted(result.sites)) == (5, [f"site-{i}" for i in range(1, 6)])
    for number in range(5):
        np.testing.assert_array_equal(result.sites[f"site-{number + 1}"], data.X[data.owners == number])
    np.testing.assert_array_equal(result.labels, nearest(data.X, result.centroids))
    assert result.metrics["ari"] == pytest.approx(ari(result.labels, data.y))


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
    assert result.clients == 2
    assert result.labels.shape == data.y.shape
    np.testing.assert_array_equal(result.labels[used], nearest(data.X[used], result.centroids))
    assert (result.labels[~used] == -1).all()
    assert result.metrics["ari"] == pytest.approx(ari(result.labels[used], data.y[used]))
    gaps = ((data.X[used] - result.centroids[result.labels[used]]) ** 2).sum()
    assert result.metrics["inertia"] == pytest.approx(gaps, rel=1e-9)
    assert len((tmp_path / "out" / "labels.csv").read_text().splitlines()) == 1 + used.sum()


def test_central_on_some_owners_is_central_on_their_rows(shared_data):
    data = load("garst_grid:beta0.1_ppc50_noise1")
    some = flareclust.run("central", data="garst_grid:beta0.1_ppc50_noise1", partition="owners:3", k=5, seed=1)
    alone = flareclust.run("central", data.X[data.owners < 3], k=5, clients=1, seed=1)
    np.testing.assert_array_equal(some.centroids, alone.centroids)


def test_data_without_owners_cannot_be_split_by_them():
    with pytest.raises(UserError, match=r"'owners' needs to know whose each row is, .* garst_grid"):
        flareclust.run("feca", data="iris", partition="owners")


def test_principal_components_are_a_setting_of_the_name():
    result = flareclust.run("feca", data="digits:pca10", clients=3)
    assert result.centroids.shape[1] == 10
    assert result.k == 10
    assert result.metrics["ari"] > 0.3


# --- results ---


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.3", "clusters:2", "power:1", "beta:1"])
def test_labels_are_in_the_order_of_the_rows(partition):
    X = load("blobs").X
    result = flareclust.run("feca", data="blobs", clients=4, partition=partition, seed=3)
    assert result.labels.dtype == np.int64
    np.testing.assert_array_equal(result.labels, result.predict(X))
    np.testing.assert_array_equal(result.labels, nearest(X, result.centroids))
    sizes = np.bincount(result.labels, minlength=result.centroids_found)
    by_site = sum(np.bincount(labels, minlength=result.centroids_found) for labels in result.site_labels.values())
    np.testing.assert_array_equal(sizes, by_site)


def test_own_labels_follow_the_names_of_the_sites(own):
    result = flareclust.run("feca", own, k=3)
    np.testing.assert_array_equal(result.labels, np.concatenate([result.site_labels[site] for site in sorted(own)]))


def test_rows_of_sites_that_gave_no_labels_are_minus_one():
    """Sites of fewer than min_count rows refuse k-FED's assessment, too."""
    X = rows(n=60)
    result = flareclust.run("kfed", X, k=3, clients=4, partition="power:4", min_sites=1, min_count=5)
    small = [site for site, part in result.sites.items() if len(part) < 5]
    assert small
    assert [f"{site} has fewer rows than min_count=5" for site in small] == result.warnings[: len(small)]
    lost = sum(len(result.sites[site]) for site in small)
    assert (result.labels == -1).sum() == lost
    assert len(result.labels) == len(X)
    kept = np.concatenate([result.site_labels[site] for site in result.sites if site not in small])
    np.testing.assert_array_equal(np.sort(result.labels[result.labels >= 0]), np.sort(kept))


def test_own_rows_of_sites_that_gave_no_labels_are_minus_one(own):
    own["site-b"][3, 1] = np.nan
    result = flareclust.run("feca", own, k=3)
    assert result.warnings == ["site-b has rows with NaN or infinite values; remove or impute them at the site"]
    assert "site-b" not in result.site_labels
    np.testing.assert_array_equal(np.flatnonzero(result.labels == -1), np.arange(30, 60))


def test_a_site_with_other_columns_changes_nothing_for_the_others(own):
    without = flareclust.run("feca", own, k=3)
    result = flareclust.run("feca", own | {"odd": np.ones((9, 5)) * np.arange(9)[:, None]}, k=2)
    assert result.warnings == ["odd has 5 columns where 4 other sites have 2"]
    result = flareclust.run("feca", own | {"odd": np.ones((2, 5))}, k=3)
    assert result.warnings == ["odd has fewer rows than k=3"]
    np.testing.assert_array_equal(result.centroids, without.centroids)
    assert result.metrics == without.metrics


@pytest.mark.parametrize(
    "odd", [np.full((9, 2), np.nan), np.ones((9, 5)), np.empty((0, 2))], ids=["NaN", "wide", "none"]
)
def test_a_picture_shows_the_sites_that_took_part(own, odd):
    result = flareclust.run("feca", own | {"odd": odd}, k=3)
    assert any(warning.startswith("odd ") for warning in result.warnings)
    assert result.plot().axes


def test_predict_checks_its_rows():
    result = flareclust.run("feca", rows(), k=3, clients=2)
    np.testing.assert_array_equal(result.predict(result.centroids), np.arange(3))
    np.testing.assert_array_equal(result.predict(result.centroids.tolist()), np.arange(3))
    for bad in (np.ones(2), np.ones((4, 3)), "text", [["a", "b"]], np.array([[np.nan, 1.0]])):
        with pytest.raises(UserError):
            result.predict(bad)


def test_plot_is_a_figure():
    from matplotlib.figure import Figure

    assert isinstance(flareclust.run("feca", rows(), k=3, clients=2).plot(), Figure)
    assert isinstance(flareclust.run("kfed", data="iris", clients=2).plot(), Figure)


def test_params_are_recorded_with_their_defaults():
    result = flareclust.run("feca", rows(), k=3, clients=2, n_init=4)
    assert result.params == flareclust.algorithms()["feca"].parameters() | {"n_init": 4}


def test_the_same_seed_gives_the_same_result():
    one, other = (flareclust.run("feca", data="iris", clients=4, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.centroids, other.centroids)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.metrics == other.metrics
    assert one.bytes == other.bytes


def test_another_seed_gives_another_split():
    one, other = (flareclust.run("feca", data="iris", clients=4, seed=seed) for seed in (3, 4))
    assert any(not np.array_equal(one.sites[site][:5], other.sites[site][:5]) for site in one.sites)


def test_the_split_does_not_depend_on_the_algorithm():
    one, other = (flareclust.run(algorithm, data="iris", clients=4, seed=3) for algorithm in ("feca", "kfed"))
    for site, X in one.sites.items():
        np.testing.assert_array_equal(X, other.sites[site])


@pytest.mark.parametrize("clients", [1, 5])
def test_central_is_scikit_learns_k_means(clients):
    from sklearn.cluster import KMeans

    result = flareclust.run("central", data="iris", clients=clients, seed=2)
    X = np.concatenate(list(result.sites.values()))
    reference = KMeans(3, n_init=10, random_state=2).fit(X)
    assert result.metrics["inertia"] == pytest.approx(reference.inertia_, rel=1e-9)
    assert result.bytes == {"up": 150 * 4 * 8, "down": 0}


def test_l2_is_in_the_unit_of_the_data(tmp_path):
    """Scaling by a power of two changes no rounding, so every choice stays and every length is eight times as long."""
    found = {}
    for scale in (1.0, 8.0):
        np.savez(tmp_path / f"{scale}.npz", X=rows() * scale, centroids=POINTS * scale)
        result = flareclust.run("feca", tmp_path / f"{scale}.npz", clients=2)
        assert result.k == 3
        apart = by_position(result.centroids) - by_position(POINTS * scale)
        assert result.metrics["l2"] == pytest.approx(np.sqrt((apart**2).sum()))
        found[scale] = result.metrics["l2"]
    assert found[8.0] == pytest.approx(8 * found[1.0])


def test_metrics_without_truth_are_those_that_need_none(own):
    metrics = flareclust.run("feca", own, k=3).metrics
    assert set(metrics) == {"inertia", "simplified_silhouette", "davies_bouldin"}
    with_labels = flareclust.run("feca", data="iris", clients=2).metrics
    assert "l2" not in with_labels


def test_inertia_is_that_of_the_rows_of_all_sites(own):
    result = flareclust.run("feca", own, k=3)
    X = np.concatenate(list(own.values()))
    expected = ((X - result.centroids[nearest(X, result.centroids)]) ** 2).sum()
    assert result.metrics["inertia"] == pytest.approx(expected, rel=1e-12)


def test_rounds_are_told_while_the_job_runs(own):
    seen = []
    flareclust.run("feca", own, k=3, on_round=seen.append)
    assert [record["step"] for record in seen] == ["cluster", "assess"]


def test_files_are_written_where_they_are_wanted_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flareclust.run("feca", rows(), k=3, clients=2)
    assert list(tmp_path.iterdir()) == []
    result = flareclust.run("feca", rows(), k=3, clients=2, out="mine")
    assert result.centroids_file == str(tmp_path / "mine" / "result.npz")
    np.testing.assert_array_equal(np.load(result.centroids_file)["centroids"], result.centroids)


def test_numpys_numbers_are_numbers(tmp_path):
    """Settings often come from np.arange; they must be JSON in the files."""
    settings = {"k_local": {"site-1": np.int64(2)}, "lloyd_rounds": np.int64(2)}
    result = flareclust.run(
        "kfed", rows(), k=np.int64(3), clients=np.int64(2), seed=np.int64(1), out=tmp_path, **settings
    )
    kept = json.loads((tmp_path / "result.json").read_text())
    assert (kept["k"], kept["seed"]) == (3, 1)
    assert (kept["params"]["lloyd_rounds"], kept["params"]["k_local"]) == (2, {"site-1": 2})
    assert json.dumps(result.to_json())


# --- requests that cannot be carried out ---


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a.b", "a,b", "a\n", "server", 1, None, ("a",)])
def test_names_that_cannot_be_site_names(own, name):
    with pytest.raises(UserError, match="cannot be a site's name"):
        flareclust.run("feca", {name: rows(), **own}, k=3)


NO_TABLES = {
    "one axis": (np.ones(5), "expected a 2-D array"),
    "three axes": (np.ones((2, 2, 2)), "expected a 2-D array"),
    "strings": (np.array([["a", "b"]]), "expected real numbers"),
    "objects": (np.array([[1.0, None]]), "not numeric"),
    "complex": (np.array([[1j, 2.0]]), "expected real numbers"),
    "ragged": ([[1.0, 2.0], [3.0]], "differ in length"),
    "NaN": (np.array([[1.0, np.nan], [3.0, 4.0]]), "NaN"),
    "masked": (np.ma.masked_greater(rows(), 15.0), "missing"),
    "no rows": (np.empty((0, 2)), "no rows"),
    "None": (None, "expected a 2-D array"),
    "unknown name": ("irris", "did you mean 'iris'"),
    "no sites": ({}, "no sites"),
    "site with one axis": ({"a": np.ones(5)}, "a: expected a table"),
    "site with strings": ({"a": np.array([["x", "y"]])}, "a: expected a numeric array"),
    "site with complex": ({"a": np.ones((4, 2)) * 1j}, "a: expected"),
    "site with None": ({"a": None}, "a: expected"),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_data_that_are_no_table_of_numbers(case):
    data, message = NO_TABLES[case]
    with pytest.raises(UserError, match=message):
        flareclust.run("feca", data, k=1, clients=1)


def test_masked_rows_of_a_site_count_as_missing(own):
    """What lies under a mask must not come back."""
    result = flareclust.run("feca", own | {"masked": np.ma.masked_greater(rows(9), 15.0)}, k=3)
    assert [warning.split()[0] for warning in result.warnings] == ["masked"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "fecca"}, "did you mean 'feca'"),
        ({"k": None}, "k is not known"),
        ({"k": 0}, "k: .* got 0"),
        ({"k": 2.5}, "k: .* got 2.5"),
        ({"k": True}, "k: .* got True"),
        ({"seed": -1}, "seed: .* got -1"),
        ({"clients": 0}, "clients: .* got 0"),
        ({"clients": 31}, r"more sites \(31\) than rows \(30\)"),
        ({"partition": "clusters:2"}, "class label"),
        ({"partition": "none"}, "none"),
        ({"engine": "pod"}, "'inprocess', 'simulator', 'poc' or 'production'"),
        ({"min_sites": 0}, "min_sites: .* got 0"),
        ({"task_timeout": 0}, "task_timeout: .* got 0"),
        ({"n_inits": 2}, "did you mean 'n_init'"),
        ({"n_init": print}, "n_init must be an integer"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings, message):
    algorithm = settings.get("algorithm", "feca")
    others = {"k": 3, "clients": 2} | {name: value for name, value in settings.items() if name != "algorithm"}
    with pytest.raises(UserError, match=message):
        flareclust.run(algorithm, rows(), **others)


def test_too_few_sites_fail_with_all_reasons(own):
    bad = {site: np.full_like(X, np.nan) if site > "site-b" else X for site, X in own.items()}
    with pytest.raises(JobFailed, match=r"2 of 4 sites .* site-c has rows with NaN .*; site-d has rows with NaN"):
        flareclust.run("feca", bad, k=3)


@pytest.mark.parametrize("bad", [np.full((5, 2), np.nan), np.ones((5, 3))], ids=["NaN", "wide"])
def test_central_names_the_site_whose_rows_it_cannot_pool(own, bad):
    with pytest.raises(UserError, match="site-x"):
        flareclust.run("central", own | {"site-x": bad}, k=3)


# --- tracking in this process ---


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for the file: making one takes seconds."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    Tracker(uri)
    return uri


@pytest.fixture
def runs(store, monkeypatch, tmp_path):
    """Give the runs that were added since the test began, newest first."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)
    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'flareclust'")

    def added():
        found = client.search_runs([experiment.experiment_id])
        return [run for run in found if run.info.run_id not in before]

    before: set[str] = set()
    before |= {run.info.run_id for run in added()}
    return added


def test_a_tracked_run_holds_the_result(runs, store, tmp_path):
    from mlflow import MlflowClient

    result = flareclust.run(
        "feca", data="iris", clients=3, partition="dirichlet:1", seed=2, track=True, min_sites=1, n_init=2
    )
    (run,) = runs()
    assert result.run_id == run.info.run_id
    assert (run.info.run_name, run.info.status) == ("feca/dirichlet:1/s2", "FINISHED")
    metrics = run.data.metrics
    for name, value in result.metrics.items():
        if value is not None:
            assert metrics[f"final/{name}"] == pytest.approx(value)
    assert metrics["final/centroids_found"] == result.centroids_found
    assert metrics["cost/bytes_up"] == result.bytes["up"]
    assert metrics["cost/seconds_total"] == pytest.approx(result.seconds["total"])
    assert metrics["round/sites"] == 3
    assert {name.split("/")[0] for name in metrics} == {"final", "cost", "round"}
    assert all(isinstance(value, str) for value in run.data.tags.values())
    assert (run.data.tags["algorithm"], run.data.tags["seed"]) == ("feca", "2")
    assert (run.data.params["partition"], run.data.params["param.n_init"]) == ("dirichlet:1", "2")
    client = MlflowClient(store)
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"centroids.npz", "centroids.csv", "picture.png", "result.json", "rounds.jsonl"} <= kept
    path = client.download_artifacts(run.info.run_id, "centroids.npz", str(tmp_path))
    np.testing.assert_array_equal(np.load(path)["centroids"], result.centroids)
    assert [folder.name.startswith("feca-") for folder in (tmp_path / "flareclust-runs").iterdir()] == [True]


def test_the_tracked_model_predicts_as_the_result_does(runs, store):
    import mlflow
    from mlflow.artifacts import download_artifacts

    result = flareclust.run("kfed", data="iris", clients=3, track=True)
    location = Tracker(store)._find_model(result.run_id).artifact_location
    model = mlflow.pyfunc.load_model(download_artifacts(artifact_uri=location, tracking_uri=store))
    table = pd.DataFrame(load("iris").X, columns=load("iris").columns)
    np.testing.assert_array_equal(model.predict(table), result.predict(table))


def test_a_failing_job_gives_a_failed_run_with_the_reason(runs, tmp_path):
    with pytest.raises(JobFailed) as failed:
        flareclust.run("feca", rows(), k=25, clients=2, track=True)
    (run,) = runs()
    assert run.info.status == "FAILED"
    assert run.data.tags["flareclust.error"] == str(failed.value)
    assert "site-1 has fewer rows than k=25" in run.data.tags["flareclust.error"]
    assert list(tmp_path.rglob("*")) == []


def test_a_wrong_request_leaves_no_run(runs):
    with pytest.raises(UserError):
        flareclust.run("feca", rows(), k=3, clients=99, track=True)
    assert runs() == []


# --- imports ---


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("flareclust", {"prefect", "mlflow", "sklearn", "nvflare", "numpy", "pandas", "matplotlib"}),
        ("flareclust.executors.feca", {"sklearn", "mlflow", "prefect", "pandas", "matplotlib", "pyarrow"}),
        ("flareclust.executors.kfed", {"sklearn", "mlflow", "prefect", "pandas", "matplotlib", "pyarrow"}),
        ("flareclust.flare.controller", {"sklearn", "mlflow", "prefect", "pandas", "matplotlib"}),
        ("flareclust.cli", {"prefect", "mlflow", "sklearn", "nvflare"}),
        ("flareclust.api", {"prefect", "mlflow"}),
    ],
)
def test_importing_a_module_leaves_out_what_it_does_not_need(module, absent, tmp_path):
    code = f"import sys, {module}; print(*sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
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
    result = flareclust.run("kfed", tmp_path / "all.csv", k=3, clients=2)
    assert result.columns == ("age", "crp")
    np.testing.assert_array_equal(result.predict(table[["crp", "age"]]), result.predict(table.to_numpy()))
    with pytest.raises(UserError, match="no column 'age'"):
        result.predict(table[["crp"]])


def test_centroids_that_nearly_coincide_are_named():
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(100, 40)) for i in range(3)}  # no clusters, many columns: they fuse
    result = flareclust.run("ffcm", sites, k=5)
    assert any("on top of one another" in warning for warning in result.warnings)
    assert not flareclust.run("pooled", sites, k=5).warnings


@pytest.mark.parametrize("k", [(2, 6), range(2, 6), [2, 6]])
def test_a_range_of_k_is_text(k):
    with pytest.raises(UserError, match=r'a range such as "5\.\.25", as text'):
        flareclust.run("pooled", data="iris", k=k)


def test_a_folder_that_cannot_be_written_is_the_users_error(monkeypatch, tmp_path):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(experiment.tempfile, "TemporaryDirectory", full)
    with pytest.raises(UserError, match=r"cannot be written to .*No space left on device"):
        flareclust.run("pooled", data="iris", clients=2, out=tmp_path / "out")
