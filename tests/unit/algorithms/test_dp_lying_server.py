"""Whatever a lying server asks of a differentially private site is refused or changes sums by the sensitivity only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.mixtures import n_second_moments
from flareclust.executors.dp_lloyd import AXES, BOUNDS, OUTLINE, SECOND_MOMENTS, UPDATE, DPLloydExecutor
from flareclust.executors.gmm import EXPECTATION
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from flareclust.testing import differential_privacy as checks_private
from tests.examples import examples
from tests.unit.algorithms.dp_cases import policy

ALONG = {"middle": np.zeros(3), "axes": np.eye(3)[:1], "half": np.ones(1), "shape": np.array([2])}


@pytest.mark.parametrize(
    ("step", "arrays"),
    [
        (StepName.CLUSTER, {}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.ones(3)}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.zeros(3), "shape": np.ones(3, int)}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.ones(3), "shape": np.full(3, 1000)}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.ones(3), "shape": np.zeros(3, int)}),
        (StepName.CLUSTER, {"low": np.zeros(2), "high": np.ones(2), "shape": np.ones(2, int)}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.ones(3), "shape": np.full(3, 2**62)}),
        (StepName.CLUSTER, {"low": np.zeros(3), "high": np.full(3, 1e-200), "shape": np.ones(3, int)}),
        (OUTLINE, {"low": np.zeros(3), "high": np.full(3, np.nan)}),
        (OUTLINE, {"low": np.zeros(3), "high": np.full(3, 1e-200)}),
        (OUTLINE, {"low": np.zeros(3), "high": np.full(3, 5e-324)}),
        (OUTLINE, {"low": np.full(3, -1.7e308), "high": np.full(3, 1.7e308)}),
        (OUTLINE, {"low": np.full(3, 1.1e140), "high": np.full(3, 1.2e140)}),
        (OUTLINE, {"low": np.zeros(3), "high": np.ones(3), "radius": np.array(0.0)}),
        (OUTLINE, {"low": np.zeros(3), "high": np.ones(3), "radius": np.ones(1)}),
        (SECOND_MOMENTS, {"low": np.zeros(3), "high": np.ones(3), "radius": np.array(np.nan)}),
        (SECOND_MOMENTS, {"high": np.ones(3), "radius": np.array(1.0)}),
        (AXES, {}),
        (AXES, {**ALONG, "axes": np.full((1, 3), 1.1)}),
        (AXES, {**ALONG, "axes": np.full((1, 3), np.nan)}),
        (AXES, {**ALONG, "axes": np.eye(3)[:2]}),
        (AXES, {**ALONG, "middle": np.full(3, 1.1e140)}),
        (AXES, {**ALONG, "half": np.zeros(1)}),
        (AXES, {**ALONG, "half": np.array(1.0)}),
        (AXES, {**ALONG, "shape": np.array([10**7])}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.ones(2)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.ones(2), "share": np.array(0.0)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.ones(2), "share": np.array(1.1)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.ones(2), "share": np.array(np.nan)}),
        (UPDATE, {"centroids": np.zeros((2, 3))}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.zeros(2)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.full(2, np.nan)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.ones(3)}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.array([1.0, 1e-200])}),
        (UPDATE, {"centroids": np.zeros((2, 3)), "radii": np.array([1.0, 1e200])}),
        (UPDATE, {"centroids": np.full((2, 3), 1e141), "radii": np.ones(2)}),
        (UPDATE, {"radii": np.ones(2)}),
        (StepName.ASSESS, {"centroids": np.zeros((2, 3))}),
        (StepName.ASSESS, {"centroids": np.zeros((2, 3)), "reach": np.array(0.0)}),
        (StepName.ASSESS, {"centroids": np.zeros((2, 3)), "reach": np.array(1e200)}),
        (StepName.ASSESS, {"centroids": np.zeros((2, 3)), "reach": np.array(1e-200)}),
        (StepName.ASSESS, {"reach": np.array(1.0)}),
    ],
)
def test_what_a_lying_server_sends_is_refused_and_costs_nothing(step, arrays, sites):
    ledger = Ledger.in_memory()
    words = "was sent|^centroids: "
    with pytest.raises((BadMessage, Refusal), match=words), np.errstate(divide="raise", over="raise", invalid="raise"):
        DPLloydExecutor(4).answer(
            Task(step, 0, arrays, "site-1"), sites["site-1"], never_abort, SiteSession(Policy.of(policy()), "a", ledger)
        )
    assert ledger.spent().total == 0


#: Numbers of every size, many of them where a square is 0 or infinite, or where a limit is.
ANY = st.one_of(
    st.floats(),
    st.floats(-10, 10),
    st.sampled_from([0.0, 1e-200, -1e-200, 1e-100, 1.1e-100, 2e-90, 1e-9, 999.0, 1e139, -1e139, 1e140, 9.9e144, 1e150]),
)

UP_TO_ONE = st.one_of(st.floats(-1, 1), ANY)

FINITE = ANY.filter(np.isfinite)


@st.composite
def hostile_tasks(draw) -> tuple[Task, np.ndarray]:
    """Return what a server could ask a site of two columns, and its rows."""
    two, radii = st.tuples(ANY, ANY).map(np.array), st.lists(ANY, min_size=2, max_size=2).map(np.array)
    centroids = draw(st.tuples(two, two).map(np.array))
    step = draw(st.sampled_from([StepName.CLUSTER, OUTLINE, SECOND_MOMENTS, AXES, UPDATE, StepName.ASSESS]))
    arrays = {
        StepName.CLUSTER: lambda: {
            "low": draw(two),
            "high": draw(two),
            "shape": np.array(draw(st.tuples(*[st.integers(0, 9)] * 2))),
        },
        OUTLINE: lambda: {"low": draw(two), "high": draw(two)},
        SECOND_MOMENTS: lambda: {"low": draw(two), "high": draw(two), "radius": np.array(draw(ANY))},
        AXES: lambda: (
            {"middle": draw(two), "axes": draw(st.tuples(UP_TO_ONE, UP_TO_ONE).map(lambda t: np.array([t])))}
            | {"half": np.array([draw(ANY)]), "shape": np.array([draw(st.integers(0, 9))])}
        ),
        UPDATE: lambda: {"centroids": centroids, "radii": draw(radii), "share": np.array(0.1)},
        StepName.ASSESS: lambda: {"centroids": centroids, "reach": np.array(draw(ANY))},
    }[step]()
    if "low" in arrays and draw(st.booleans()):  # most pairs that come as they are would be refused
        arrays |= dict(zip(("low", "high"), np.sort([arrays["low"], arrays["high"]], axis=0), strict=True))
    rows = draw(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=8))
    return Task(step, 0, arrays, "site-1"), np.array(rows, dtype=float)


@settings(max_examples=examples(400), deadline=None)
@given(asked=hostile_tasks())
def test_whatever_a_server_asks_a_row_changes_sums_by_the_sensitivity_only_and_never_what_is_refused(asked):
    task, rows = asked
    algorithm = get("dp-lloyd")
    checks_private.ensure_alike(algorithm, checks_private.build(algorithm, 3), task, rows, rows[1:])


@st.composite
def hostile_mixtures(draw) -> tuple[str, Task, np.ndarray]:
    """Return a type of covariance, the mixture that a server could ask a site of two columns about, and the site's rows."""
    kind = draw(st.sampled_from(["full", "tied", "diag", "spherical"]))
    positive = (
        ANY.map(abs) if draw(st.booleans()) else st.floats(1e-3, 1e3)
    )  # most that come as they are would be refused
    two = st.tuples(FINITE, FINITE).map(np.array)
    factors = np.array(draw(st.tuples(st.tuples(positive, positive), st.tuples(positive, positive))))
    if kind in ("tied", "spherical"):
        factors = np.repeat(factors[:1] if kind == "tied" else factors[:, :1], 2, axis=int(kind == "spherical"))
    if kind in ("full", "tied"):
        below = np.array([[[0.0, 0.0], [draw(ANY), 0.0]]] * 2)
        factors = factors[:, None] * np.eye(2) + below
    first = draw(st.one_of(positive, st.floats(0, 1)))
    mixture = {"centroids": draw(st.tuples(two, two).map(np.array)), "weights": np.array([first, 1.0 - first])}
    moments = np.array(n_second_moments(kind, 2, 2))
    arrays = {**mixture, "factors": factors, "moments": moments, "share": np.array(0.1)}
    rows = draw(st.lists(st.tuples(FINITE, FINITE), min_size=2, max_size=8))
    return kind, Task(EXPECTATION, 1, arrays, "site-1"), np.array(rows, dtype=float)


@settings(max_examples=examples(300), deadline=None)
@given(asked=hostile_mixtures())
def test_whatever_mixture_a_server_asks_about_a_row_changes_sums_by_the_sensitivity_only(asked):
    kind, task, rows = asked
    algorithm = get("dp-gmm")
    executor = checks_private.build(algorithm, 2, covariance=kind, updates=1)
    checks_private.ensure_alike(algorithm, executor, task, rows, rows[1:])


def test_values_of_any_size_are_taken_and_others_than_numbers_are_not(sites):
    held = SiteSession(Policy.of(policy(budget=50.0)), "a", Ledger.in_memory())
    centroids, rows = sites["site-1"][:3], sites["site-1"].copy()
    tasks = (
        Task(BOUNDS, 0, {}, "site-1"),
        Task(UPDATE, 1, {"centroids": centroids, "radii": np.ones(3), "share": np.array(0.15)}, "site-1"),
        Task(StepName.ASSESS, 2, {"centroids": centroids, "reach": np.array(1.0)}, "site-1"),
        Task(StepName.PLACE, 2, {"centroids": centroids}, "site-1"),
    )
    rows[0] = 1.7e308
    for task in tasks:
        DPLloydExecutor(4).answer(task, rows, never_abort, held)
    for value in (np.nan, np.inf, -np.inf):
        rows[1] = value
        for task in tasks:
            with pytest.raises(Refusal, match="NaN or infinite"):
                DPLloydExecutor(4).answer(task, rows, never_abort, held)


def test_a_site_that_is_asked_again_and_again_stops_at_the_jobs_budget(sites):
    ledger = Ledger.in_memory()
    held = SiteSession(Policy.of(policy(epsilon=5.0, budget=50.0)), "a", ledger)
    arrays = {"centroids": np.zeros((1, 3)), "radii": np.ones(1), "share": np.array(0.15)}

    def ask(round_: int) -> None:
        DPLloydExecutor(4, rounds=3).answer(Task(UPDATE, round_, arrays, "site-1"), sites["site-1"], never_abort, held)

    for round_ in range(6):  # of 0.15 each
        ask(round_)
    with pytest.raises(Refusal, match="on this job"):
        ask(6)
    assert ledger.spent().total <= accounting.rho_of(1.0, 1e-5)
