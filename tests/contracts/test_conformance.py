"""Every promise of every algorithm, and proof that the checks notice when one is broken."""

from dataclasses import replace

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.seeding import stream
from flareclust.aggregators.feca import FeCAAggregator
from flareclust.core import assessment, local, microaggregation
from flareclust.core.microaggregation import groups_of, released
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.feca import FeCAExecutor
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation import different
from flareclust.privacy import stages
from flareclust.privacy.enforcement import PolicyEnforcer, Request
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import Algorithm, algorithms, get
from flareclust.protocol.stages import SiteExchange
from flareclust.protocol.task import StepName, Task
from flareclust.testing import ContractViolation, checks_for
from flareclust.testing import always as checks_always
from flareclust.testing import promised as checks_promises
from flareclust.testing.policies import check_policies_hold
from flareclust.testing.tools import exchanges
from tests.computed import computed

SEEDED = [a for a in algorithms().values() if "seeds" in a.parameters()]
assert {"fkm", "lloyd", "dkmpp", "minibatch"} <= {a.name for a in SEEDED}

CASES = [(a, name, check) for a in algorithms().values() for name, check in checks_for(a)]


@pytest.mark.parametrize(("algorithm", "name", "check"), CASES, ids=[f"{a.name}:{name}" for a, name, _ in CASES])
def test_promise(algorithm, name, check):
    check(algorithm)


@pytest.mark.parametrize("seeds", ["means", "rows"])
@pytest.mark.parametrize("algorithm", SEEDED, ids=lambda a: a.name)
def test_seeds_are_means_of_cells_and_rows_only_where_asked(algorithm, seeds):
    rng = np.random.default_rng(0)
    rows = np.repeat(20 * rng.normal(size=(4, 3)), 25, axis=0) + rng.normal(size=(100, 3))
    sent = exchanges(algorithm, {"site-1": rows}, k=4, seeds=seeds)
    first, *later = (one.arrays["centroids"] for one in sent if one.task.step != StepName.DESCRIBE)
    assert first.shape == (4, 3)
    is_row = (first[:, None] == rows).all(axis=2).any(axis=1)
    assert (is_row == (seeds == "rows")).all()
    if seeds == "means":  # clusters stand so far apart that the means have the cells of the seeds
        nearest = ((rows[:, None] - first) ** 2).sum(axis=2).argmin(axis=1)
        np.testing.assert_allclose(first, [rows[nearest == c].mean(axis=0) for c in range(4)])
    for centroids in later:
        assert not (centroids[:, None] == rows).all(axis=2).any()


def broken(**overrides) -> Algorithm:
    """FeCA with a fault planted in its executor or its aggregator."""
    line = get("feca")
    executor = type("Broken", (FeCAExecutor,), {k: v for k, v in overrides.items() if k != "merge"})
    aggregator = type("BrokenA", (FeCAAggregator,), {k: v for k, v in overrides.items() if k == "merge"})

    class Planted(Algorithm):
        def executor_class(self) -> type[ClusteringExecutor]:
            return executor

        def aggregator_class(self):
            return aggregator

    return Planted(line.name, line.title, line.executor, line.aggregator)


def sends_rows(self, task, rows):
    return {"centroids": rows.X[-self.params.k :].copy(), "radii": np.ones(min(self.params.k, len(rows.X)))}


def ignores_seed(self, task, rows):
    return FeCAExecutor.local(self, task, replace(rows, rng=np.random.default_rng()))


def sends_nan(self, task, rows):
    return {"centroids": np.full((1, rows.X.shape[1]), np.nan), "radii": np.ones(1)}


def never_stops(self, task, rows):
    return FeCAExecutor.local(self, task, replace(rows, aborted=lambda: False))


def grows(self, task, rows):
    return {"centroids": np.repeat(rows.X.mean(axis=0)[None], len(rows.X), axis=0), "radii": np.ones(len(rows.X))}


def sends_one_mean(self, task, rows):
    return {"centroids": rows.X.mean(axis=0)[None], "radii": np.ones(1)}


def snaps_to_a_grid(self, round_, replies, rng):
    merged = FeCAAggregator.merge(self, round_, replies, rng)
    merged.task["centroids"] = np.round(merged.task["centroids"] / 7) * 7
    return merged


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (checks_always.check_nothing_sent_is_a_row, {"local": sends_rows}),
        (checks_always.check_small_clusters_stay, {"local": sends_rows}),
        (checks_always.check_same_seed_same_centroids, {"local": ignores_seed}),
        (checks_always.check_abort_stops, {"local": never_stops}),
        (checks_always.check_size_does_not_grow_with_rows, {"local": grows}),
        (checks_promises.check_recovers_iid, {"local": sends_one_mean}),
        (checks_promises.check_translation, {"merge": snaps_to_a_grid}),
    ],
    ids=lambda value: getattr(value, "__name__", "fault"),
)
def test_the_checks_notice(check, fault):
    with pytest.raises(ContractViolation):
        check(broken(**fault))


def by_count_only(data, labels, centroids, min_count, *, ones=None, known=None):
    return np.bincount(labels[labels >= 0], minlength=len(centroids)) >= min_count


def test_the_check_of_rows_notices_centroids_that_are_rows_by_chance(monkeypatch):
    monkeypatch.setattr(local, "describable", by_count_only)
    with pytest.raises(ContractViolation, match="holds a row"):
        checks_always.check_nothing_sent_is_a_row(get("feca"))


@pytest.mark.parametrize("kept_back", [1, 9])
@pytest.mark.parametrize("name", ["masked", "proxy"])
def test_the_check_of_columns_notices_sums_that_less_those_of_clusters_are_of_one_row(monkeypatch, name, kept_back):
    """A row alone, and one repeated, whose mean it is."""

    def careless(data, found, min_count):
        left = len(data) - int(found.counts.sum())
        return found if left == kept_back else local.without_remainder(data, found, min_count)

    monkeypatch.setattr(different, "without_remainder", careless)
    with pytest.raises(ContractViolation, match="a row kept back"):
        checks_promises._ensure_no_remainder(get(name))


def test_the_check_of_rows_looks_at_later_rounds_too(monkeypatch):
    """The seeds are guarded, so that only what an update sends can be a row."""
    update = local.lloyd_update

    def careless(*arguments, **more):
        with monkeypatch.context() as patched:
            patched.setattr(local, "describable", by_count_only)
            return update(*arguments, **more)

    monkeypatch.setattr(local, "lloyd_update", careless)
    for name in ("lloyd", "fkm"):
        with pytest.raises(ContractViolation, match="holds a row"):
            checks_always.check_nothing_sent_is_a_row(get(name))


def test_no_centroid_is_sent_that_lags_behind_its_cluster(monkeypatch):
    """k-means may stop on its tolerance with a centroid that is still the one row its cluster had before."""
    crowd = np.random.default_rng(32).uniform(-3, 3, 1001)
    rows = np.concatenate([crowd, [30.8, 60.0]])[:, None]
    monkeypatch.setattr(local, "describable", by_count_only)
    task = Task(StepName.CLUSTER, 0, {}, "site-1")

    def nearest_row():
        sent = computed(FeCAExecutor(3), task, rows, stream(0, 0, "site-1"))["centroids"]
        return np.abs(sent - rows.T).min()

    assert nearest_row() > 1e-6
    monkeypatch.setattr(local, "recompute_centroids", lambda data, found: found)
    assert nearest_row() == 0, "the case no longer shows what recompute_centroids is for"


def ignores_the_floor(self, under=SiteExchange.under, **conditions):
    return under(self, **{name: value for name, value in conditions.items() if name != "min_count"})


def does_not_check(self, question, arrays, made_under):
    return dict(arrays)


def does_not_count(self, step, round_, arrays):
    return Request(step, round_, {})


@pytest.mark.parametrize(
    ("name", "words", "faults"),
    [
        ("feca", "a centroid at", {"under": ignores_the_floor, "microaggregated": lambda self, table: table}),
        ("kfed", "counts below 10", {"under": ignores_the_floor, "check_reply": does_not_check}),
        (
            "kfed",
            "counts that are not rounded",
            {"rounded": lambda value, *_: value, "check_reply": does_not_check},
        ),
        ("mavg", "centroids", {"check_reply": does_not_check}),
        ("lloyd", "answered", {"check_request": does_not_count}),
        ("lloyd", "sums|counts", {"without_small": lambda sums, _: sums, "check_reply": does_not_check}),
    ],
)
def test_the_check_of_policies_notices_when_one_does_not_hold(monkeypatch, name, words, faults):
    for attribute, fault in faults.items():
        owners = (PolicyEnforcer, SiteSession, SiteExchange, assessment, stages)
        where = next(owner for owner in owners if hasattr(owner, attribute))
        monkeypatch.setattr(where, attribute, fault)
    with pytest.raises(ContractViolation, match=words):
        check_policies_hold(get(name))


@pytest.mark.parametrize("name", ["lloyd", "portfolio", "masked"])
def test_it_notices_when_missing_cells_are_filled_with_means_of_all_known_ones(monkeypatch, name):
    def filled(X, floor):
        rows = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        return released(rows, groups_of(rows, floor))

    monkeypatch.setattr(microaggregation, "grouped", filled)
    with pytest.raises(ContractViolation, match="no group shows"):
        check_policies_hold(get(name))


def test_a_policy_keeps_back_what_an_algorithm_sends_in_spite_of_it(monkeypatch):
    """An executor that ignores the floor, as one of another package might: its small counts do not leave."""
    monkeypatch.setattr(SiteExchange, "under", ignores_the_floor)
    refused: dict[str, list[str]] = {}
    rows = np.concatenate([np.random.default_rng(0).normal(size=(40, 2)), np.full((4, 2), 90.0) + np.eye(4, 2)])
    sent = exchanges(get("pooled"), {"site-1": rows}, 3, policy=Policy(), refused=refused)
    assert not sent
    assert "lets out no counts below 10" in refused["site-1"][0]


def test_nan_in_a_reply_never_reaches_the_result(sites):
    with pytest.raises(JobFailed, match="centroids: holds NaN"):
        run_inprocess(broken(local=sends_nan), {}, sites, JobOptions(k=4))


def test_an_unknown_promise_is_an_error():
    line = get("feca")
    odd = Algorithm(line.name, line.title, line.executor, line.aggregator, frozenset({"flies"}))
    with pytest.raises(ContractViolation, match="flies"):
        list(checks_for(odd))
