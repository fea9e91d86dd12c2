"""What `flareclust.run` returns: labels in the order of the rows, metrics, figures, files."""

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import load
from flareclust.experiment.results.result import Result
from tests.unit.experiment.api_cases import POINTS, by_position, nearest, rows

# --- results ---


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.3", "clusters:2", "power:1", "beta:1"])
def test_labels_are_in_the_order_of_the_rows(partition):
    X = load("blobs").X
    result = flareclust.run("feca", data="blobs", n_sites=4, partition=partition, seed=3)
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
    result = flareclust.run("kfed", X, k=3, n_sites=4, partition="power:4", min_sites=1, min_count=5)
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
    assert result.warnings == [
        "site-b has rows with NaN or infinite values; remove or impute them at the site, or set missing=mean"
    ]
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
    result = flareclust.run("feca", rows(), k=3, n_sites=2)
    np.testing.assert_array_equal(result.predict(result.centroids), np.arange(3))
    np.testing.assert_array_equal(result.predict(result.centroids.tolist()), np.arange(3))
    for bad in (np.ones(2), np.ones((4, 3)), "text", [["a", "b"]], np.array([[np.nan, 1.0]])):
        with pytest.raises(UserError):
            result.predict(bad)


def test_plot_is_a_figure():
    from matplotlib.figure import Figure

    assert isinstance(flareclust.run("feca", rows(), k=3, n_sites=2).plot(), Figure)
    assert isinstance(flareclust.run("kfed", data="iris", n_sites=2).plot(), Figure)


def test_arrays_of_an_algorithm_are_attributes_of_its_result(tmp_path):
    result = flareclust.run("gmm", rows(), k=3, n_sites=2, out=tmp_path / "out")
    assert result.weights is result.arrays["weights"]
    np.testing.assert_array_equal(result.covariances, result.arrays["covariances"])
    loaded = flareclust.load_result(tmp_path / "out")
    others = [
        copy.copy(result),
        copy.deepcopy(result),
        replace(result, seed=9),
        pickle.loads(pickle.dumps(result)),
        loaded,
    ]
    for other in others:
        np.testing.assert_array_equal(other.weights, result.weights)
    with pytest.raises(AttributeError, match=r"a result has no 'wieghts'; its arrays are .*, support, weights"):
        result.wieghts  # noqa: B018
    assert not hasattr(flareclust.run("feca", rows(), k=3, n_sites=2), "weights")


def test_a_result_without_its_fields_has_no_attributes():
    """As `copy` and `pickle` make one before they fill it."""
    with pytest.raises(AttributeError, match="its arrays are none"):
        object.__new__(Result).arrays  # noqa: B018


def test_params_are_recorded_with_their_defaults():
    result = flareclust.run("feca", rows(), k=3, n_sites=2, n_init=4)
    assert result.params == flareclust.algorithms()["feca"].parameters() | {"n_init": 4}


def test_the_same_seed_gives_the_same_result():
    one, other = (flareclust.run("feca", data="iris", n_sites=4, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.centroids, other.centroids)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.metrics == other.metrics
    assert one.bytes == other.bytes


def test_another_seed_gives_another_split():
    one, other = (flareclust.run("feca", data="iris", n_sites=4, seed=seed) for seed in (3, 4))
    assert any(not np.array_equal(one.sites[site][:5], other.sites[site][:5]) for site in one.sites)


def test_the_split_does_not_depend_on_the_algorithm():
    one, other = (flareclust.run(algorithm, data="iris", n_sites=4, seed=3) for algorithm in ("feca", "kfed"))
    for site, X in one.sites.items():
        np.testing.assert_array_equal(X, other.sites[site])


@pytest.mark.parametrize("n_sites", [1, 5])
def test_central_is_scikit_learns_k_means(n_sites):
    from sklearn.cluster import KMeans

    result = flareclust.run("central", data="iris", n_sites=n_sites, seed=2)
    X = np.concatenate(list(result.sites.values()))
    reference = KMeans(3, n_init=10, random_state=2).fit(X)
    assert result.metrics["inertia"] == pytest.approx(reference.inertia_, rel=1e-9)
    assert result.bytes == {"up": 150 * 4 * 8, "down": 0}


def test_l2_is_in_the_unit_of_the_data(tmp_path):
    """Scaling by a power of two changes no rounding, so every choice stays and every length is eight times as long."""
    found = {}
    for scale in (1.0, 8.0):
        np.savez(tmp_path / f"{scale}.npz", X=rows() * scale, centroids=POINTS * scale)
        result = flareclust.run("feca", tmp_path / f"{scale}.npz", n_sites=2)
        assert result.k == 3
        apart = by_position(result.centroids) - by_position(POINTS * scale)
        assert result.metrics["l2"] == pytest.approx(np.sqrt((apart**2).sum()))
        found[scale] = result.metrics["l2"]
    assert found[8.0] == pytest.approx(8 * found[1.0])


def test_metrics_without_truth_are_those_that_need_none(own):
    metrics = flareclust.run("feca", own, k=3).metrics
    assert set(metrics) == {"inertia", "simplified_silhouette", "davies_bouldin"}
    with_labels = flareclust.run("feca", data="iris", n_sites=2).metrics
    assert "l2" not in with_labels


def test_inertia_is_that_of_the_rows_of_all_sites(own):
    result = flareclust.run("feca", own, k=3)
    X = np.concatenate(list(own.values()))
    expected = ((X - result.centroids[nearest(X, result.centroids)]) ** 2).sum()
    assert result.metrics["inertia"] == pytest.approx(expected, rel=1e-12)


def test_rounds_are_reported_while_the_job_runs(own):
    seen = []
    flareclust.run("feca", own, k=3, on_round=seen.append)
    assert [record["step"] for record in seen] == ["cluster", "assess"]


def test_files_are_written_where_they_are_wanted_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flareclust.run("feca", rows(), k=3, n_sites=2)
    assert list(tmp_path.iterdir()) == []
    result = flareclust.run("feca", rows(), k=3, n_sites=2, out="mine")
    assert result.centroids_file == str(tmp_path / "mine" / "result.npz")
    np.testing.assert_array_equal(np.load(result.centroids_file)["centroids"], result.centroids)


def test_numpys_numbers_are_numbers(tmp_path):
    """Settings often come from np.arange; they must be JSON in the files."""
    settings = {"k_local": {"site-1": np.int64(2)}, "lloyd_rounds": np.int64(2)}
    result = flareclust.run(
        "kfed", rows(), k=np.int64(3), n_sites=np.int64(2), seed=np.int64(1), out=tmp_path, **settings
    )
    kept = json.loads((tmp_path / "result.json").read_text())
    assert (kept["k"], kept["seed"]) == (3, 1)
    assert (kept["params"]["lloyd_rounds"], kept["params"]["k_local"]) == (2, {"site-1": 2})
    assert json.dumps(result.to_json())


# --- imports ---


def test_centroids_that_nearly_coincide_are_named():
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(100, 40)) for i in range(3)}  # no clusters, many columns: they fuse
    result = flareclust.run("ffcm", sites, k=5)
    assert any("on top of one another" in warning for warning in result.warnings)
    assert not flareclust.run("pooled", sites, k=5).warnings


@pytest.mark.parametrize("k", [[2, 6], range(2, 9, 2), (2, 6, 8)])
def test_what_is_no_range_of_k_is_refused(k):
    with pytest.raises(UserError, match=r'a range such as "5\.\.25"'):
        flareclust.run("pooled", data="iris", k=k)
