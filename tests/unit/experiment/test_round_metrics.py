"""Metrics of every round: against scikit-learn and plain NumPy on the rows of the sites that took part."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust.core.rounds import HISTORY
from flareclust.data.datasets import Dataset
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import OneTable, _NamedSites, prepare
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.evaluate import with_round_metrics
from flareclust.experiment.submit import submit
from flareclust.protocol.outcome import Outcome, is_round

NAN = float("nan")
TRUE = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])


def dataset(n=40, centroids=TRUE, labelled=True):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3 * n)
    X = TRUE[y] + rng.normal(size=(3 * n, 2))
    return Dataset("own", X, y if labelled else None, centroids)


def record(step="cluster", round_=0, **diagnostics):
    return {"round": round_, "step": step, "diagnostics": diagnostics}


def outcome(history, rounds, sites=("a", "b"), refused=(), d=2):
    arrays = {"centroids": np.zeros((3, d))}
    if history is not None:
        arrays[HISTORY] = np.array(history, dtype=float)
    return Outcome(arrays, {}, rounds, list(sites), dict.fromkeys(refused, "left"), 0, 0, 0.0, 0.0)


def prepared(data, index=None):
    half = len(data.X) // 2
    order = np.random.default_rng(1).permutation(len(data.X))
    index = index or {"a": order[:half], "b": order[half:]}
    return Prepared(3, {site: data.X[chosen] for site, chosen in index.items()}, index, data)


def diagnostics(found):
    return [one["diagnostics"] for one in found.rounds]


def distances(X, centroids):
    return np.linalg.norm(X[:, None] - centroids[None], axis=2)


FIRST = [[0.0, 1.0], [9.0, 0.0], [NAN, NAN]]
SECOND = [[1.0, 0.0], [10.0, 1.0], [0.0, 9.0]]


def test_every_round_is_measured_on_all_rows():
    data = dataset()
    rounds = [record(shift=1.0), record(round_=1), record("assess", 2)]
    found = with_round_metrics(outcome([FIRST, SECOND], rounds), prepared(data))
    first, second, assessed = diagnostics(found)
    for reported, centroids in ((first, np.array(FIRST[:2])), (second, np.array(SECOND))):
        D = distances(data.X, centroids)
        assert reported["pooled_inertia"] == pytest.approx((D.min(axis=1) ** 2).sum())
        assert reported["ari"] == pytest.approx(adjusted_rand_score(data.y, D.argmin(axis=1)))
    assert first["l2"] == pytest.approx(np.sqrt(1 + 1))  # of the two that there are, to the true ones matched to them
    assert second["l2"] == pytest.approx(np.sqrt(3))
    assert first["shift"] == 1.0  # what the algorithm says itself is kept
    assert assessed == {}


def test_the_outcome_that_came_in_is_not_changed():
    rounds = [record(), record("assess", 1)]
    given = outcome([SECOND], rounds)
    with_round_metrics(given, prepared(dataset()))
    assert diagnostics(given) == [{}, {}]


def test_a_site_that_was_left_out_does_not_count():
    data = dataset()
    there = prepared(data)
    found = with_round_metrics(outcome([SECOND], [record()], refused=["b"]), there)
    mine = there.index["a"]
    D = distances(data.X[mine], np.array(SECOND))
    assert diagnostics(found)[0]["pooled_inertia"] == pytest.approx((D.min(axis=1) ** 2).sum())
    assert diagnostics(found)[0]["ari"] == pytest.approx(adjusted_rand_score(data.y[mine], D.argmin(axis=1)))


def test_only_what_can_be_known_is_reported():
    no_labels = with_round_metrics(outcome([SECOND], [record()]), prepared(dataset(labelled=False)))
    assert set(diagnostics(no_labels)[0]) == {"pooled_inertia", "l2"}
    no_centroids = with_round_metrics(outcome([SECOND], [record()]), prepared(dataset(centroids=None)))
    assert set(diagnostics(no_centroids)[0]) == {"pooled_inertia", "ari"}
    data = dataset()
    own = Prepared(3, {"a": data.X[:50], "b": data.X[50:]})
    nothing = with_round_metrics(outcome([SECOND], [record()]), own)
    assert set(diagnostics(nothing)[0]) == {"pooled_inertia"}
    D = distances(data.X, np.array(SECOND))
    assert diagnostics(nothing)[0]["pooled_inertia"] == pytest.approx((D.min(axis=1) ** 2).sum())


def test_the_history_belongs_to_the_last_rounds():
    """The rounds of a job that chose k come before those of the algorithm, and have no centroids."""
    rounds = [record(), record("score", 1, chosen_k=3.0), record(round_=2), record("update", 3), record("assess", 4)]
    found = diagnostics(with_round_metrics(outcome([FIRST, SECOND], rounds), prepared(dataset())))
    assert found[:2] == [{}, {"chosen_k": 3.0}]
    assert {"pooled_inertia", "ari", "l2"} == set(found[2]) == set(found[3])
    assert found[4] == {}


@pytest.mark.parametrize(
    ("given", "sites"),
    [
        (outcome(None, [record()]), None),
        (outcome([SECOND, SECOND], [record()]), None),  # more centroids than rounds are on record
        (outcome([SECOND], [record()], refused=["a", "b"]), None),
        (outcome([np.zeros((3, 5))], [record()], d=5), None),
    ],
    ids=["no history", "too few records", "all left out", "other columns"],
)
def test_where_nothing_can_be_measured_nothing_changes(given, sites):
    assert with_round_metrics(given, prepared(dataset())) is given


@pytest.mark.parametrize("algorithm", ["lloyd", "fkm"])
def test_a_run_measures_every_round_and_the_last_is_the_result(algorithm):
    data = dataset()
    experiment = Experiment(algorithm=algorithm, k=3, n_sites=3, engine="inprocess", params={"rounds": 4, "tol": 0.0})
    found = submit(experiment, prepare(experiment, OneTable(data)))
    reported = [one["diagnostics"] for one in found.rounds if one["step"] != "assess"]
    assert len(reported) == len(found.arrays[HISTORY]) >= 2
    for own, centroids in zip(reported, found.arrays[HISTORY], strict=True):
        D = distances(data.X, centroids)
        assert own["pooled_inertia"] == pytest.approx((D.min(axis=1) ** 2).sum())
        assert own["ari"] == pytest.approx(adjusted_rand_score(data.y, D.argmin(axis=1)))
    assert reported[-1]["pooled_inertia"] == pytest.approx(found.metrics["inertia"])
    assert reported[-1]["l2"] == pytest.approx(np.linalg.norm(np.sort(found.centroids, 0) - np.sort(TRUE, 0)))


def test_files_of_sites_are_read(tmp_path):
    data = dataset()
    for site, part in zip("ab", np.array_split(data.X, 2), strict=True):
        np.savetxt(tmp_path / f"{site}.csv", part, delimiter=",", header="x,y", comments="")
    experiment = Experiment(algorithm="lloyd", k=3, n_sites=2, partition="none", engine="inprocess")
    sites = {site: tmp_path / f"{site}.csv" for site in "ab"}
    found = submit(experiment, prepare(experiment, _NamedSites(sites)))
    last = [one["diagnostics"] for one in found.rounds if is_round(one)][-1]
    assert last["pooled_inertia"] == pytest.approx(found.metrics["inertia"], rel=1e-6)


def test_one_shot_algorithms_have_no_round_metrics():
    records = []
    flareclust.run("kfed", dataset().X, k=3, on_round=records.append)
    assert all("pooled_inertia" not in one["diagnostics"] for one in records)


@pytest.mark.parametrize("algorithm", ["masked", "fkm-common", "fkm-imputed"])
def test_columns_in_another_order_and_rows_that_were_dropped_do_not_mislead(algorithm):
    rows = dataset().X
    sites = {
        "a": pd.DataFrame(rows[:60], columns=["u", "v"]),
        "b": pd.DataFrame(rows[60:], columns=["u", "v"])[["v", "u"]],
    }
    sites["a"].iloc[4, 1] = NAN
    result = flareclust.run(algorithm, sites, k=3, missing="drop-rows", rounds=4)
    *_, last = (found["pooled_inertia"] for found in diagnostics(result.outcome) if "pooled_inertia" in found)
    taken = np.delete(rows, 4, axis=0)
    assert last == pytest.approx((distances(taken, result.centroids).min(axis=1) ** 2).sum())
