"""Over how many rows the metrics are, and what is said where they are few."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

import flareclust
from flareclust.experiment.config import make_experiment
from flareclust.experiment.prepare import _NamedSites, prepare
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.submit import submit
from flareclust.federation import ASSESSED


def sites(n=40, m=3):
    rng = np.random.default_rng(0)
    return {f"site-{i}": rng.normal(size=(n, 2)) + 20 * (np.arange(n) % 2)[:, None] for i in range(m)}


def evaluated(assessed=None, policy=None, refused=(), at_sites=False, **arrays):
    """The result of three sites of forty rows, as if the assessment had been of so many rows.

    With `at_sites`, as of a run whose sites tell nobody how many rows they have.
    """
    experiment = make_experiment(algorithm="kfed", k=2, data="own", engine="inprocess", n_sites=3, policy=policy)
    prepared = prepare(experiment, _NamedSites(sites()))
    outcome, lost = submit(experiment, prepared), dict.fromkeys(refused, "answered too late")
    *rounds, last = outcome.rounds
    if assessed is not None:
        last = {**last, "diagnostics": {**last["diagnostics"], ASSESSED: assessed}}
    if at_sites:
        last = {**last, "sites": [site for site in last["sites"] if site not in lost]}
        arrays = {name: value for name, value in outcome.arrays.items() if name != "counts"} | arrays
        outcome, prepared = replace(outcome, labels={}, arrays=arrays), Prepared(2, {})
    return evaluate(experiment, prepared, replace(outcome, rounds=[*rounds, last], refused=lost), 0.0)


def test_a_result_tells_of_how_many_rows_its_metrics_are(capsys, tmp_path):
    result = evaluated()
    assert result.assessed == {"rows": 120, "of": 120}
    assert not result.warnings
    assert result.to_json()["assessed"] == {"rows": 120, "of": 120}
    print_result(result)
    assert "120 of 120" in capsys.readouterr().out
    kept = flareclust.run("kfed", sites(), k=2, out=tmp_path / "kept")
    assert flareclust.load_result(tmp_path / "kept").assessed == kept.assessed == {"rows": 120, "of": 120}


@pytest.mark.parametrize(("rows", "words"), [(109.0, []), (107.0, ["107 of 120"]), (0.0, ["of no rows"])])
def test_few_rows_are_warned_of(rows, words):
    warnings = evaluated(rows).warnings
    assert [word in warning for word, warning in zip(words, warnings, strict=True)] == [True] * len(words)


def test_under_a_policy_the_warning_says_why():
    (warning,) = evaluated(108.0, policy={}).warnings
    assert "108 of 120 rows: the sites' policy leaves out small cells" in warning
    (few,) = evaluated(118.0, policy={}).warnings  # 2 of 120 would be told
    assert "118 rows: the sites' policy leaves out small cells" in few


@pytest.mark.parametrize(
    ("rows", "k", "words"),
    [
        (100, 2, []),
        (
            98,
            2,
            ["49 rows for each of 2 clusters, of which their policy makes groups of 10 or more: centroids may be off"],
        ),
        (30, 4, ["8 rows for each of 4 clusters", "groups mix clusters, and the centroids are probably wrong"]),
    ],
)
def test_few_rows_of_a_cluster_at_each_site_are_named_under_a_policy(rows, k, words):
    """Groups of ten rows or more hold rows of several clusters where a site has few of each."""
    one = flareclust.run("lloyd", sites(rows), k=k, policy={})
    found = [warning for warning in one.warnings if "for each of" in warning]
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)
    assert not any("for each of" in warning for warning in flareclust.run("lloyd", sites(rows), k=k).warnings)


@pytest.mark.parametrize(("algorithm", "d", "warned"), [("gmm", 5, True), ("gmm", 2, False), ("lloyd", 5, False)])
def test_groups_as_wide_as_components_are_named_where_they_change_covariances(algorithm, d, warned):
    """320 rows make 32 groups, 8 of each component: in five columns a group is two thirds as wide as it, in two a third."""
    rng = np.random.default_rng(0)
    rows = {site: 8.0 * rng.integers(4, size=(320, 1)) + rng.normal(size=(320, d)) for site in "abc"}
    texts = flareclust.run(algorithm, rows, k=4, policy={}).warnings
    found = [text for text in texts if "80 rows for each of 4 components in 5 columns" in text]
    assert len(found) == warned
    assert all("groups of 10 or more, about 66% as wide as a component" in text for text in found)
    assert not any("components in" in text for text in flareclust.run(algorithm, rows, k=4).warnings)


@pytest.mark.parametrize(("number", "instead"), [(4, False), (120, True)])
def test_noise_is_named_where_groups_mix_clusters_and_rows_in_all_stand_out_of_it(number, instead):
    result = flareclust.run("lloyd", sites(30, number), k=4, policy={})
    (found,) = [warning for warning in result.warnings if "for each of" in warning]
    named = f"dp-lloyd with secure_sums and epsilon=1, for which {30 * number:,} rows at {number} sites are enough"
    assert (named in found) == instead


def test_real_sites_with_few_rows_of_a_cluster_may_have_a_policy():
    experiment = make_experiment(algorithm="kfed", k=2, data="own", engine="inprocess", n_sites=3)
    outcome = submit(experiment, prepare(experiment, _NamedSites(sites())))
    real = experiment.model_copy(update={"engine": "production"})
    (warning,) = evaluate(real, Prepared(2, {}), replace(outcome, labels={}), 0.0).warnings
    assert (
        "about 20 rows for each of 2 clusters, of which their policies, unless they say otherwise, make groups"
        in warning
    )


@pytest.mark.parametrize("algorithm", ["pooled", "kfed"])
@pytest.mark.parametrize(
    ("most", "word"), [(4, "20 rows for each of 2 clusters"), (5, "4 at most, where up to k=5 was tried")]
)
def test_a_range_of_k_beyond_the_groups_of_a_site_is_named(algorithm, most, word):
    """Sites of forty rows make four groups of ten, so that they cannot show five clusters."""
    result = flareclust.run(algorithm, sites(), k=(2, most), policy={})
    (found,) = [warning for warning in result.warnings if "sites have about" in warning]
    assert word in found
    assert ("k=2 may be far too small. End the range at 4" in found) == (most == 5)


def test_where_nobody_knows_how_many_rows_there_are_the_tables_say_so(capsys):
    result = evaluated(120.0, at_sites=True)
    assert result.assessed == {"rows": 120, "of": None}
    assert not result.warnings
    print_result(result)
    assert "120; how many the sites have is not known here" in capsys.readouterr().out
    assert "120; how many the sites have is not known here" in report_page(result)


@pytest.mark.parametrize("name", ["received_counts", "counts", "rows_in_all"])
def test_rows_that_provisioned_sites_reported_and_did_not_assess_are_warned_of(name):
    (warning,) = evaluated(10.0, at_sites=True, **{name: np.array([1000, 24])}).warnings
    assert warning.startswith(
        "the assessment is of 10 rows, where the sites reported 1,024 before; how many they have is"
    )
    assert "Sites' policies leave out small cells, so inertia is of these rows alone" in warning
    assert not evaluated(120.0, at_sites=True, **{name: np.array([60, 58])}).warnings  # without small clusters
    assert not evaluated(120.0, at_sites=True, **{name: np.array([60, 60])}).warnings


@pytest.mark.parametrize("name", ["received_counts", "counts"])
def test_rows_in_no_cluster_that_a_site_sent_are_warned_of(name):
    (warning,) = evaluated(120.0, at_sites=True, **{name: np.array([60, 50])}).warnings
    assert warning.startswith("10 of 120 rows were in no cluster that a site sent")
    assert warning.endswith("use portfolio with secure_sums, small_clusters=dissolve, fewer clusters or larger sites")


@pytest.mark.parametrize(
    ("algorithm", "settings", "advice"),
    [
        ("portfolio", {}, "use secure_sums, fewer clusters"),
        ("lloyd", {"min_count": 3}, "use secure_sums, a smaller min_count, fewer"),
        ("fkm", {}, "use portfolio with secure_sums, fewer"),
        ("pooled", {}, "small_clusters=dissolve, fewer clusters"),
    ],
)
def test_small_sites_are_warned_of_with_what_would_help(algorithm, settings, advice):
    """Twenty rows of twelve clusters at a site: many clusters are of one row there."""
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(12, 3))
    small = {f"site-{i}": centers[rng.integers(0, 12, 20)] + rng.normal(size=(20, 3)) for i in range(6)}
    found = [one for one in flareclust.run(algorithm, small, k=12, **settings).warnings if "no cluster that" in one]
    assert len(found) == 1
    assert advice in found[0]
    few = {"trim_rows": 0.3} if algorithm in ("portfolio", "lloyd") else {}
    assert not any("no cluster that" in one for one in flareclust.run(algorithm, small, k=2, **few).warnings)


def test_remedies_of_the_warning_are_remedies():
    rng = np.random.default_rng(0)
    centers = 8 * rng.normal(size=(12, 3))
    small = {f"site-{i}": centers[rng.integers(0, 12, 20)] + rng.normal(size=(20, 3)) for i in range(6)}
    for algorithm, remedy in (("pooled", {"small_clusters": "dissolve"}), ("portfolio", {"secure_sums": True})):
        warnings = flareclust.run(algorithm, small, k=12, **remedy).warnings
        assert not any("no cluster that" in one for one in warnings)


@pytest.mark.parametrize("algorithm", ["pooled", "fkm", "portfolio", "feca", "lloyd", "dkmpp", "mavg"])
@pytest.mark.parametrize("m", [3, 10])
def test_rows_below_detection_have_a_centroid(algorithm, m):
    """Two rows in five are all zeros; without them the inertia is at least ten times the best."""
    rng = np.random.default_rng(m)
    y = rng.choice(4, 120 * m, p=[0.4, 0.2, 0.2, 0.2])
    X = np.array([[0.0, 0.0], [9.0, 4.0], [4.0, 12.0], [14.0, 14.0]])[y] + (y > 0)[:, None] * rng.normal(
        size=(len(y), 2)
    )
    detected = {f"site-{i}": X[i::m] for i in range(m)}
    result = flareclust.run(algorithm, detected, k=4)
    best = KMeans(4, n_init=20, random_state=0).fit(X).inertia_
    assert result.metrics["inertia"] < 1.5 * best
    assert not result.warnings


def test_the_number_of_clusters_counts_rows_below_detection():
    rng = np.random.default_rng(0)
    y = rng.choice(4, 600, p=[0.4, 0.2, 0.2, 0.2])
    X = np.array([[0.0, 0.0], [9.0, 4.0], [4.0, 12.0], [14.0, 14.0]])[y] + (y > 0)[:, None] * rng.normal(size=(600, 2))
    result = flareclust.run("pooled", {f"site-{i}": X[i::5] for i in range(5)}, k="2..7")
    assert len(result.centroids) == 4


def test_rows_of_sites_that_were_lost_are_not_missing_from_the_assessment():
    assert evaluated(80.0, at_sites=True, refused=["site-2"], counts=np.array([60, 60])).warnings == [
        "site-2 answered too late"
    ]


def test_a_known_policy_is_named_where_nothing_tells_how_many_rows_there_are():
    (warning,) = evaluated(10.0, at_sites=True, policy={}).warnings
    assert "of 10 rows; how many the sites have is not known here, and their policies leave out small cells" in warning


def test_an_assessment_of_no_rows_has_no_metrics():
    """Twelve rows at each site are one group of its policy, and every cell has fewer than ten of them."""
    rng = np.random.default_rng(0)
    few = {f"site-{i}": rng.normal(size=(12, 2)) for i in range(3)}
    result = flareclust.run("pooled", few, k=6, policy={})
    assert result.assessed == {"rows": 0, "of": 36}
    assert [result.metrics[name] for name in ("inertia", "simplified_silhouette", "davies_bouldin")] == [None] * 3
    assert any("The assessment is of no rows" in warning for warning in result.warnings)
    json.dumps(result.to_json(), allow_nan=False)


def test_rows_of_a_site_that_only_an_earlier_exchange_went_without_count_in_both_numbers():
    result = evaluated(refused=["site-2"])
    assert "site-2" in result.left_out
    assert result.assessed == {"rows": 120, "of": 120}


def test_what_is_not_federated_has_no_assessment():
    assert "assessed" not in flareclust.run("central", sites(), k=2).to_json()
