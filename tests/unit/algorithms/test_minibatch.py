"""NVFlare's mini-batch scheme: the same numbers as NVFlare's own server and scikit-learn's step, without their faults."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_opt.sklearn.kmeans_assembler import KMeansAssembler
from sklearn.cluster import MiniBatchKMeans

import flareclust
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.aggregators.minibatch import MiniBatchAggregator, _MiniBatchState, _running_means
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.minibatch import SAMPLE, MiniBatchExecutor, _sample_means
from flareclust.federation.server import ServerJob
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests.computed import computed


def run(sites: Mapping[str, FloatArray], k: int, seed: int = 0, **params: object) -> Outcome:
    return run_inprocess(get("minibatch"), params, sites, JobOptions(k=k, seed=seed))


def ask(rows: FloatArray, step: str, centroids: FloatArray | None = None, seed: int = 0, **params: object) -> Message:
    executor = MiniBatchExecutor(**{"k": 3, **params})  # type: ignore[arg-type]
    arrays = {} if centroids is None else {"centroids": centroids}
    return computed(executor, Task(step, 0, arrays, "site-1"), rows, np.random.default_rng(seed), never_abort)


# NVFlare's server as the oracle


class NVFlareServer:
    """NVFlare's assembler, fed with centers and counts of all k clusters by site, as its clients send them."""

    def __init__(self, seeds: Mapping[str, FloatArray], start: FloatArray) -> None:
        self.assembler = KMeansAssembler()
        self._assemble(0, {site: {"center": center, "count": None} for site, center in seeds.items()})
        self.assembler.center = start.copy()  # its own start is not seeded

    def _assemble(self, round_: int, messages: Mapping[str, Mapping[str, object]]) -> FloatArray:
        context = FLContext()
        context.set_prop(AppConstants.CURRENT_ROUND, round_)
        self.assembler.reset()
        for site, message in messages.items():
            dxo = DXO(DataKind.WEIGHTS, data=dict(message))
            self.assembler.collection[site] = self.assembler.get_model_params(dxo)
        center: FloatArray = self.assembler.assemble({}, context).data["center"]
        return center.copy()

    def update(self, round_: int, replies: Mapping[str, Message]) -> FloatArray:
        return self._assemble(round_, {site: self._full(reply) for site, reply in replies.items()})

    def _full(self, reply: Message) -> dict[str, FloatArray]:
        """Return a reply in NVFlare's form: a center without rows is the one that was sent, with a count of 0."""
        center, count = self.assembler.center.copy(), np.zeros(len(self.assembler.center))
        center[reply["cluster"]], count[reply["cluster"]] = reply["centroids"], reply["counts"]
        return {"center": center, "count": count}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_from_the_same_messages_the_centroids_are_those_of_nvflares_server(seed: int, k: int, m: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    sites = {f"site-{i}": rng.normal(size=(40, d)) for i in range(m)}
    executor, aggregator = MiniBatchExecutor(k, seed), MiniBatchAggregator(k, seed, rounds=5)

    def local(step: str, round_: int, arrays: Message) -> dict[str, Message]:
        return {
            site: computed(
                executor, Task(step, round_, arrays, site), rows, np.random.default_rng([seed, round_]), never_abort
            )
            for site, rows in sites.items()
        }

    seeds = local(StepName.CLUSTER, 0, {})
    round_ = ServerJob(aggregator).advance(aggregator.begin(), seeds)
    k = len(round_.task["centroids"])
    whole = {site: np.resize(reply["centroids"], (k, d)) for site, reply in seeds.items()}
    oracle = NVFlareServer(whole, round_.task["centroids"])
    for number in range(1, 6):
        replies = local(SAMPLE, number, round_.task)
        round_ = ServerJob(aggregator).advance(round_, replies)
        reported = np.unique(np.concatenate([reply["cluster"] for reply in replies.values()]))
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = oracle.update(number, replies)
        assert round_.done == (number == 5)
        ever = round_.state.seen > 0
        assert ever[reported].all()
        np.testing.assert_allclose(round_.task["centroids"][ever], expected[ever], rtol=0, atol=1e-12)
        assert np.isfinite(round_.task["centroids"]).all()
        oracle.assembler.center[~ever] = round_.task["centroids"][~ever]  # NaN there; see the next test


def test_nvflares_server_divides_by_zero_where_this_one_keeps_the_centroid() -> None:
    start = np.array([[0.0, 0.0], [90.0, 90.0]])
    sent: Message = {"centroids": np.array([[1.0, 2.0]]), "counts": np.array([4]), "cluster": np.array([0])}
    centroids, seen = _running_means(start, np.zeros(2, np.int64), **sent)
    assert centroids.tolist() == [[1.0, 2.0], [90.0, 90.0]]
    assert seen.tolist() == [4, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        theirs = NVFlareServer({"a": start}, start).update(1, {"a": sent})
    assert theirs[0].tolist() == [1.0, 2.0]
    assert np.isnan(theirs[1]).all()


def test_running_means_worked_by_hand() -> None:
    before, seen = np.array([[1.0], [10.0]]), np.array([3, 0])
    centroids, total = _running_means(
        before, seen, np.array([[5.0], [3.0], [12.0]]), np.array([1, 4, 2]), np.array([0, 0, 1])
    )
    # (3 * 1 + 1 * 5 + 4 * 3) / 8; the start of cluster 1 counts nothing.
    assert centroids.tolist() == [[2.5], [12.0]]
    assert total.tolist() == [8, 2]
    assert (before.tolist(), seen.tolist()) == ([[1.0], [10.0]], [3, 0])


# scikit-learn's step as the oracle


@pytest.mark.parametrize("seed", range(5))
def test_the_sites_step_is_that_of_scikit_learns_mini_batch_k_means(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, centroids = rng.normal(size=(80, 3)), 0.5 * rng.normal(size=(4, 3))
    fitted = MiniBatchKMeans(
        4, batch_size=80, max_iter=1, init=centroids, n_init=1, reassignment_ratio=0, random_state=seed
    ).fit(X)
    drawing = np.random.RandomState(seed)  # as scikit-learn draws: rows to judge the start by, then the batch
    drawing.randint(0, 80, 80)
    times = np.bincount(drawing.choice(80, 80, p=np.full(80, 1 / 80), replace=True), minlength=80)
    sent = _sample_means(X, times, centroids, min_count=2)
    assert sent["cluster"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(sent["counts"], fitted._counts)
    np.testing.assert_allclose(sent["centroids"], fitted.cluster_centers_, rtol=0, atol=1e-12)


def test_a_sample_is_as_large_as_the_site_and_differs_between_rounds_and_seeds() -> None:
    rng = np.random.default_rng(0)
    sites = {"a": rng.normal(size=(200, 2)), "b": rng.normal(size=(200, 2))}
    outcome = run(sites, 2, rounds=3)
    assert outcome.arrays["seen"].sum() == 3 * 400
    one, again, other = (ask(sites["a"], SAMPLE, np.array([[0.0, 1.0], [1.0, 0.0]]), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one["centroids"], again["centroids"])
    assert not np.array_equal(one["centroids"], other["centroids"])
    # A mean of as many rows drawn with replacement: within four of its standard errors of the mean of the rows.
    assert np.abs(ask(sites["a"], SAMPLE, np.zeros((1, 2)))["centroids"] - sites["a"].mean(axis=0)).max() < 4 / 200**0.5


def test_rounds_come_after_the_seeds_and_the_history_holds_the_start() -> None:
    rng = np.random.default_rng(0)
    outcome = run({"a": rng.normal(size=(90, 2)), "b": rng.normal(size=(90, 2))}, 3)
    assert [record["step"] for record in outcome.rounds] == [StepName.CLUSTER, SAMPLE, SAMPLE, SAMPLE, SAMPLE, "assess"]
    assert outcome.arrays["history"].shape == (5, 3, 2)
    np.testing.assert_array_equal(outcome.centroids, outcome.arrays["history"][-1])


# What may leave a site


def test_a_sample_worked_by_hand() -> None:
    rows = np.array([[0.0], [1.0], [4.0], [20.0], [21.0], [50.0], [90.0], [91.0], [92.0]])
    centroids = np.array([[1.0], [20.0], [50.0], [91.0], [500.0]])
    sent = _sample_means(rows, np.array([2, 1, 1, 3, 0, 1, 1, 0, 1]), centroids, min_count=2)
    # Of cluster 1 one row was drawn, three times; of 2 its only one; the mean of what was drawn of 3 is a row.
    assert {name: value.tolist() for name, value in sent.items()} == {
        "centroids": [[1.25]],
        "counts": [4],
        "cluster": [0],
    }
    assert not len(_sample_means(rows, np.array([9, 8, 0, 0, 0, 0, 0, 0, 0]), centroids, min_count=3)["counts"])


def test_a_site_whose_groups_are_all_too_small_stays_and_tells_nothing() -> None:
    centroids = np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]])
    sent = ask(centroids + 0.3, SAMPLE, centroids)
    assert {name: value.shape for name, value in sent.items()} == {"centroids": (0, 2), "counts": (0,), "cluster": (0,)}
    np.testing.assert_array_equal(centroids, _running_means(centroids, np.zeros(3, np.int64), **sent)[0])

    other: Message = {"centroids": centroids[1:] + 1, "counts": np.array([4, 2]), "cluster": np.array([1, 2])}
    merged = ServerJob(MiniBatchAggregator(3)).advance(
        Round({"centroids": centroids}, state=_MiniBatchState(seen=np.zeros(3, np.int64)), step=SAMPLE, index=1),
        {"a": sent, "b": other},
    )
    assert merged.diagnostics["received"] == 2


def test_a_site_with_fewer_rows_than_min_count_refuses_both_steps() -> None:
    for step, centroids in ((StepName.CLUSTER, None), (SAMPLE, np.eye(3))):
        with pytest.raises(Refusal, match="fewer rows than min_count=5"):
            ask(np.eye(3), step, centroids, min_count=5)


# The real sets


@pytest.mark.slow
def test_s1_iid_is_near_the_optimum_and_more_rounds_bring_it_nearer(shared_data: object) -> None:
    few, many = (
        np.mean([_l2("s1", seed, rounds=rounds) for seed in range(6)]) / 1e4
        for rounds in (4, 60)  # the optimum on the pooled rows is 0.96
    )
    assert few == pytest.approx(1.0, abs=0.15)
    assert many == pytest.approx(0.96, abs=0.04)


def _l2(data: str, seed: int, rounds: int) -> float:
    l2 = flareclust.run("minibatch", data=data, seed=seed, rounds=rounds).metrics["l2"]
    assert l2 is not None
    return l2
