"""The terms of a site: bounds, deltas, what a job may spend, what is in the ledger."""

import sys

import numpy as np
import pytest

from flareclust._foundation.errors import Aborted, Refusal, UserError
from flareclust.data.tables import Table
from flareclust.executors.dp_lloyd import BOUNDS, OUTLINE, UPDATE, DPLloydExecutor
from flareclust.federation.server import ServerJob
from flareclust.privacy.dp import mechanism
from flareclust.privacy.dp.budget import DPSession
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.unit.algorithms.dp_cases import PRIVATE, policy


def terms(rows, columns=None, ledger=None, job="a", hidden=frozenset(), **said) -> DPSession:
    held = Policy.of(policy(**said))
    return DPSession.of(
        SiteSession(held, job, ledger or Ledger.in_memory()),
        Table(np.asarray(rows, float), columns, hidden=hidden),
        "site-1",
    )


# Account


@pytest.mark.parametrize("delta", [0, 1, 0.5, -1e-5, float("nan"), "small"])
def test_deltas_that_protect_nobody_are_refused(delta):
    with pytest.raises(UserError, match=r"delta must be a number from 1e-30 to 0\.01"):
        get("dp-lloyd").build(3, 0, {"delta": delta})


# Noise


def test_without_opendp_a_site_says_what_to_install(monkeypatch):
    mechanism._opendp.cache_clear()
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(Refusal, match=r"pip install 'flareclust\[dp\]'"):
        terms(np.zeros((3, 2)))
    mechanism._opendp.cache_clear()


# Terms


@pytest.mark.parametrize(
    ("bounds", "columns", "low", "high"),
    [
        ((0, 1), None, [0, 0], [1, 1]),
        ([[0, 1], [-5, 5]], None, [0, -5], [1, 5]),
        ({"b": [0, 1], "a": [2, 3], "c": [4, 5]}, ("a", "b"), [2, 0], [3, 1]),
    ],
)
def test_bounds_come_in_three_forms(bounds, columns, low, high):
    found = terms(np.zeros((4, 2)), columns, bounds=bounds)
    assert (found.box.low.tolist(), found.box.high.tolist()) == (low, high)


@pytest.mark.parametrize(
    ("bounds", "columns", "words"),
    [
        ([[0, 1]] * 3, None, "bounds for 3 columns and rows of 2"),
        ({"a": [0, 1], "b": [0, 1]}, None, "bounds by the names of columns and rows without such names"),
        ({"a": [0, 1], "x": [0, 1]}, ("a", "secret"), "no bounds for 1 of its 2 columns"),
        ([-1e200, 1e200], None, "too far apart"),
    ],
)
def test_bounds_of_other_columns_are_refused_without_hidden_names(bounds, columns, words):
    with pytest.raises(Refusal, match=words) as caught:
        terms(np.zeros((4, 2)), columns, hidden=frozenset({"secret"}), bounds=bounds)
    assert "secret" not in str(caught.value)


def test_columns_without_bounds_are_named():
    with pytest.raises(Refusal, match=r"no bounds for 1 of its 2 columns \('b'\); add them"):
        terms(np.zeros((4, 2)), ("a", "b"), bounds={"a": [0, 1]})
    with pytest.raises(Refusal, match=r"no bounds for 2 of its 3 columns \('b' and more\); add them"):
        terms(np.zeros((4, 3)), ("a", "b", "c"), hidden=frozenset({"c"}), bounds={"a": [0, 1]})


@pytest.mark.parametrize(
    "bounds", [None, [], [0, 0], [1, 0], [0, float("nan")], [0, float("inf")], [[0, 1], [3, 2]], 5, {}]
)
def test_bounds_that_bound_nothing_are_refused_where_they_are_read(bounds):
    with pytest.raises((UserError, Refusal)):
        terms(np.zeros((4, 2)), ("a", "b"), bounds=bounds)


def test_a_job_that_asks_for_more_than_a_site_grants_learns_how_much_it_may():
    granting = terms(np.zeros((4, 2)), epsilon=0.5)
    with pytest.raises(
        Refusal, match=r"no more than epsilon=0\.5 .* asks for epsilon=1 .* ask for (epsilon=)?0\.5 or less"
    ):
        granting.granted(1.0, 1e-5)
    assert granting.granted(0.497, 1e-5).rho < granting.rho
    # A job may say another delta; what counts is the noise.
    assert granting.granted(0.52, 1e-6).rho < granting.rho


def test_what_is_spent_is_in_the_ledger_before_the_noise_and_limits_hold(monkeypatch):
    ledger = Ledger.in_memory()
    granting = terms(np.zeros((4, 2)), ledger=ledger, epsilon=1.0, budget=1.5).granted(1.0, 1e-5)
    counted = []
    monkeypatch.setattr(mechanism, "gaussian", lambda values, *_: counted.append(ledger.spent().total) or values)
    granting.gaussian(np.zeros(2, np.int64), 1.0, 0.6 * granting.rho, "first")
    assert counted == [pytest.approx(0.6 * granting.rho)]
    with pytest.raises(Refusal, match=r"has spent epsilon=0\.7\d+ of at most 1 on this job .* start a new job"):
        granting.gaussian(np.zeros(2, np.int64), 1.0, 0.6 * granting.rho, "second")
    other = terms(np.zeros((4, 2)), ledger=ledger, job="b", epsilon=1.0, budget=1.0)
    with pytest.raises(Refusal, match=r"of its budget of 1 for all jobs .* ask the site's operator"):
        other.gaussian(np.zeros(2, np.int64), 1.0, 0.5 * other.rho, "third")
    assert len(counted) == 1, "noise was drawn for what was refused"


def test_a_job_that_asks_for_more_than_is_left_for_all_jobs_is_refused_before_it_spends():
    ledger = Ledger.in_memory()
    first = terms(np.zeros((4, 2)), ledger=ledger, epsilon=1.0, budget=1.2).granted(1.0, 1e-5)
    first.gaussian(np.zeros(2, np.int64), 1.0, first.rho, "all of it")
    spent = ledger.spent().total
    other = terms(np.zeros((4, 2)), ledger=ledger, job="b", epsilon=1.0, budget=1.2)
    with pytest.raises(Refusal, match=r"of its budget of 1\.2 for all jobs"):
        other.granted(1.0, 1e-5)
    assert ledger.spent().total == spent
    assert other.granted(0.1, 1e-5).rho > 0


# Federations


def test_sites_may_have_different_bounds(sites):
    """The box is what they span together; a one-shot adds up only what is alike."""
    rows = list(sites.values())
    for name in PRIVATE:
        executor, aggregator = get(name).build(4, 0, {"epsilon": 100.0})
        round_ = aggregator.begin()
        replies = {}
        while not round_.done:
            for i, data in enumerate(rows):
                bounds = (-20.0 - i, 20.0)
                held = terms(data, bounds=bounds, epsilon=100.0, budget=1000.0, job=f"{round_.step}{round_.index}")
                replies[f"site-{i}"] = computed(
                    executor,
                    Task(round_.step, round_.index, round_.task, f"site-{i}"),
                    data,
                    np.random.default_rng(0),
                    context=SiteContext(dp=held),
                )
            round_ = ServerJob(aggregator).advance(round_, replies)
        centers = np.abs(round_.task["centroids"])
        assert np.abs(centers - 10).max() < 3


def test_a_stop_is_heard_before_anything_is_spent(sites):
    ledger = Ledger.in_memory()
    held = terms(sites["site-1"], ledger=ledger)
    for step in (StepName.CLUSTER, BOUNDS, OUTLINE, UPDATE):
        with pytest.raises(Aborted):
            computed(
                DPLloydExecutor(4),
                Task(step, 0, {}, "s"),
                sites["site-1"],
                np.random.default_rng(0),
                lambda: True,
                SiteContext(dp=held),
            )
    assert ledger.spent().total == 0
