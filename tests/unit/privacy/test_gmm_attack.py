"""What a server learns of single rows from the sums of a Gaussian mixture, whose components it can choose.

The attacks: a component so narrow that one row has nearly all of its weight; the totals of a mixture with such a component, less those
of one without; and two mixtures that one row changes sides between. The last one finds the row where the site has no policy.
"""

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.executors.gmm import EXPECTATION, FIT, FIT_DIAGONAL
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import Task
from flareclust.testing.tools import exchanges

GMM = get("gmm")
LONELY = np.array([31.25, -18.5, 12.75])


@pytest.fixture
def rows(rng):
    return np.concatenate([rng.normal(size=(80, 3)), LONELY[None]])


def mixture(means, deviations, weights=None):
    """Return a task's mixture of round components."""
    means, k = np.array(means, dtype=float), len(means)
    factors = np.repeat(np.array(deviations, dtype=float)[:, None], 3, axis=1)
    weights = np.full(k, 1 / k) if weights is None else np.array(weights)
    return {"centroids": means, "weights": weights, "factors": factors, "moments": np.array(3 * k)}


def asked(rows, questions, policy=None, k=3, **params):
    """Return what a site answers to mixtures, as the rounds of one job; None where it refuses."""
    executor, _ = GMM.build(k, 0, {"covariance": "diag", **params})
    held, found = None if policy is None else SimulatedSite.of(policy, GMM), []
    for round_, question in enumerate(questions):
        try:
            found.append(answered(executor, Task(EXPECTATION, round_, question, "site-1"), rows, held).arrays)
        except Refusal:
            found.append(None)
    return found


@pytest.mark.parametrize("deviation", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("min_count", [1, 2, 5])
def test_a_component_of_one_row_says_nothing(deviation, min_count, rows):
    question = mixture([[0.0, 0.0, 0.0], LONELY + 0.01], [1.0, deviation])
    (reply,) = asked(rows, [question], min_count=min_count)
    assert reply["weights"][1] == 0
    assert not reply["shifts"][:, 1].any()
    assert not reply["m2"][3:].any()


@pytest.mark.parametrize("copies", [2, 3, 20])
def test_copies_of_a_row_are_one_row(copies, rows):
    question = mixture([[0.0, 0.0, 0.0], LONELY], [1.0, 1.0])
    (reply,) = asked(np.concatenate([rows, np.tile(LONELY, (copies - 1, 1))]), [question])
    assert reply["weights"][1] == 0


def test_a_faint_component_is_no_way_around_the_rule(rows):
    """A weight so small that the row has little of it at all, but nearly all that there is."""
    question = mixture([[0.0, 0.0, 0.0], [60.0, -40.0, 25.0]], [8.0, 5.0], [1 - 1e-12, 1e-12])
    (reply,) = asked(rows, [question])
    assert reply["weights"][1] == 0


def test_the_totals_of_two_mixtures_differ_by_no_row(rows):
    narrow, wide = (
        asked(rows, [question])[0]
        for question in (mixture([[0.0, 0.0, 0.0], LONELY], [1.0, 1.0]), mixture([[0.0, 0.0, 0.0]], [1.0]))
    )
    assert narrow["weights"].sum() == pytest.approx(len(rows), abs=1e-9)
    np.testing.assert_allclose(narrow["shifts"].sum(axis=1), wide["shifts"].sum(axis=1), atol=1e-9)


def changing_sides(rows, policy, **params):
    """Return the row that two mixtures differ by, by the sums about one mean; None where the site does not answer."""
    # Two wide components side by side: their border lies left of the row, and then right of it.
    near, far = np.array([0.0, -18.5, 0.0]), np.array([62.0, -18.5, 0.0])
    questions = [mixture([near, far + np.array([2 * step, 0.0, 0.0])], [0.4, 0.4]) for step in (-0.5, 1.0)]
    replies = asked(rows, questions, policy, **params)
    if any(reply is None for reply in replies):
        return None
    one, two = (reply["shifts"][:, 0] + reply["weights"][0] * near for reply in replies)
    weight = replies[1]["weights"][0] - replies[0]["weights"][0]
    return (two - one) / weight if abs(weight) > 1e-9 else None


def test_two_mixtures_between_which_a_row_changes_sides_give_it_away_without_a_policy(rows, rng):
    """As two sets of centroids do of any algorithm whose sites send sums, see docs/attacks.md: hence policies."""
    beyond = rng.normal([60.0, -18.5, 0.0], 1.0, (40, 3))  # so that the component on the other side is of enough rows
    found = changing_sides(np.concatenate([rows, beyond]), None)
    np.testing.assert_allclose(found, LONELY, atol=1e-6)


def test_with_a_policy_what_they_differ_by_is_no_row(rows, rng):
    beyond = rng.normal([60.0, -18.5, 0.0], 1.0, (40, 3))
    everything = np.concatenate([rows, beyond])
    found = changing_sides(everything, Policy())
    assert found is None or np.abs(everything - found).max(axis=1).min() > 0.1


def test_what_an_honest_job_asks_says_nothing_of_a_row_that_is_alone(rows, rng):
    """In every round, each component of a reply is of enough rows, and the row is in its totals."""
    sites = {"site-1": rows, "site-2": rng.normal(size=(90, 3))}
    for covariance in ("full", "tied", "diag", "spherical"):
        seen = [one for one in exchanges(GMM, sites, k=3, covariance=covariance) if one.task.site == "site-1"]
        replies = [one.arrays for one in seen if "log_likelihood" in one.arrays]
        assert replies
        for reply in replies:
            assert reply["weights"].sum() == pytest.approx(len(rows), abs=1e-9)
            described = reply["weights"] > 0
            assert (reply["weights"][described] >= 3).all() or covariance == "spherical"


@pytest.mark.parametrize("step", [FIT, FIT_DIAGONAL])
@pytest.mark.parametrize("policy", [None, Policy()])
def test_a_mixture_of_the_sites_own_rows_has_no_component_of_a_row_that_is_alone(step, policy, rows):
    executor, _ = GMM.build(8, 0, {"start": "mixtures", "covariance": "full" if step == FIT else "diag"})
    held = None if policy is None else SimulatedSite.of(policy, GMM)
    reply = answered(executor, Task(step, 0, {}, "site-1"), rows, held).arrays
    least = 10 if policy else 3
    assert (reply["weights"] >= least).all()
    variances = np.einsum("kdd->kd", reply["m2"]) if step == FIT else reply["m2"]
    assert (variances > 0).all()
    assert np.abs(reply["centroids"] - LONELY).max(axis=1).min() > 10


@pytest.mark.parametrize("min_count", [1, 2])
@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("step", [FIT, FIT_DIAGONAL])
def test_two_rows_are_no_component_of_a_sites_own_mixture(step, covariance, min_count, rng):
    """Mean and variances of two rows are these rows, but for signs. A server may ask either step in a job with any covariances."""
    rows = np.concatenate([rng.normal(size=(80, 3)), LONELY[None], LONELY[None] + [1.75, 2.5, 1.5]])
    executor, _ = GMM.build(3, 0, {"start": "mixtures", "covariance": covariance, "min_count": min_count})
    reply = answered(executor, Task(step, 0, {}, "site-1"), rows, None).arrays
    numbers = 1 + 3 + (6 if step == FIT else 3)
    assert (reply["weights"] * 3 > numbers - 1e-6).all()
    assert np.abs(reply["centroids"] - rows[-2:].mean(axis=0)).max(axis=1).min() > 1
