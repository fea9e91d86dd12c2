"""Mean and inertia of two rows are these rows: what updates say of groups of two, in all kinds of rows, and what is judged."""

import numpy as np
import pytest

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.lloyd import LloydAggregator, LloydState
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.portfolio import PortfolioExecutor
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.refinement import UPDATE, Refinement, advanced
from flareclust.federation.server import ServerJob
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import Task
from tests.computed import computed

ROWS = np.array([[0.0], [1.0], [2.5], [20.0], [21.7], [50.0], [50.5], [52.0]])
CENTERS = np.array([[1.0], [20.0], [51.0]])


@pytest.mark.parametrize("executor", [LloydExecutor(3), PortfolioExecutor(3)])
def test_the_inertia_is_without_groups_of_two_rows(executor: ClusteringExecutor) -> None:
    sent = computed(executor, Task(UPDATE, 1, {"centroids": CENTERS}, "a"), ROWS, None)
    assert sent["counts"].tolist() == [3, 2, 3]
    larger = np.delete(ROWS, [3, 4], axis=0)
    assert float(sent["inertia"]) == pytest.approx(((larger - np.repeat(CENTERS[[0, 2]], 3, axis=0)) ** 2).sum())


def test_an_update_of_two_rows_only_has_no_inertia() -> None:
    sent = computed(LloydExecutor(1), Task(UPDATE, 1, {"centroids": CENTERS[1:2]}, "a"), ROWS[3:5], None)
    assert sent["counts"].tolist() == [2]
    assert float(sent["inertia"]) == 0.0


def reply(inertia: float, counts: list[int]) -> Message:
    centroids = np.arange(float(len(counts)))[:, None]
    return {
        "centroids": centroids,
        "counts": np.array(counts),
        "cluster": np.arange(len(counts)),
        "inertia": np.array(inertia),
    }


def test_a_solution_is_judged_by_the_rows_behind_the_inertia() -> None:
    start = Refinement(np.zeros((3, 1)), 0, 0)
    state, _, task = advanced(start, UPDATE, {"centroids": np.array([[0.0], [1.0], [2.0]])}, [reply(12.0, [2, 4, 2])])
    assert state.best == 3.0
    assert not task


def test_where_nothing_is_reported_nothing_more_is_asked() -> None:
    nothing = {name: value[:0] for name, value in reply(0.0, [1]).items() if name != "inertia"}
    task = {"centroids": np.array([[0.0], [1.0], [2.0]])}
    state, _, more = advanced(
        Refinement(task["centroids"], 3, 3), UPDATE, task, [{**nothing, "inertia": np.array(0.0)}]
    )
    assert not more
    assert state.best == np.inf
    one = {"centroids": np.array([[0.0]])}
    assert not advanced(Refinement(one["centroids"], 0, 3), UPDATE, one, [reply(1.0, [5])])[
        2
    ]  # one cluster has no moves


def test_the_numbers_of_rows_of_the_last_update_stay_where_no_attempt_reports_any() -> None:
    job = ServerJob(LloydAggregator(2, split_merge=1))
    state = LloydState(
        history=np.zeros((1, 2, 1)), counts=np.array([7, 8]), refinement=Refinement(np.zeros((2, 1)), 0, 1)
    )
    nothing = {name: value[:0] for name, value in reply(0.0, [1]).items() if name != "inertia"}
    asked = Round({"centroids": np.array([[0.0], [1.0]])}, index=3, step=UPDATE, state=state)
    done = job.advance(asked, {"a": {**nothing, "inertia": np.array(0.0)}})
    assert done.done
    assert done.state.counts.tolist() == [7, 8]


def test_attempts_help_where_groups_at_sites_are_of_two_rows_and_of_more() -> None:
    """Sites have two to five rows of each cluster; from a start that parts one cluster in two."""
    rng = np.random.default_rng(0)
    centers = 20.0 * rng.normal(size=(6, 2))

    def rows() -> FloatArray:
        return np.concatenate([center + rng.normal(size=(rng.integers(2, 6), 2)) for center in centers])

    sites = {f"site-{i}": rows() for i in range(20)}
    start = [*centers[1:5], centers[0] - 0.5, centers[0] + 0.5]
    found = [
        run_inprocess(
            get("lloyd"), {"start": np.array(start).tolist(), "split_merge": attempts}, sites, JobOptions(k=6)
        )
        for attempts in (0, 3)
    ]
    X = np.concatenate(list(sites.values()))
    inertia = [((X[:, None] - one.centroids) ** 2).sum(axis=2).min(axis=1).sum() for one in found]
    assert inertia[1] < 0.5 * inertia[0]
    assert inertia[1] < 2.2 * len(X)  # two columns of variance 1
