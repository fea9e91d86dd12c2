"""An attacker who knows all rows but one: what its guesses prove of epsilon is less than claimed, and more if noise is short."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.dp import mixture_sums
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.axes import ROW_UNIT, SQUARE_UNIT, VALUE_UNIT
from flareclust.core.dp.box import Box
from flareclust.executors.dp_gmm import DPGMMExecutor
from flareclust.executors.dp_lloyd import AXES, OUTLINE, SECOND_MOMENTS, UPDATE, DPLloydExecutor
from flareclust.executors.dp_oneshot import GRID_SHARE, DPOneShotExecutor
from flareclust.executors.gmm import EXPECTATION
from flareclust.federation.executor import ClusteringExecutor
from flareclust.privacy.dp import accounting, mechanism
from flareclust.privacy.dp.budget import DPSession
from flareclust.privacy.dp.mechanism import _usual
from flareclust.privacy.dp.site import AXES_START, MOMENTS_START
from flareclust.privacy.policy import DifferentialPrivacy
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.unit.privacy.dp_attacks import DELTA, EPSILON, Free, proven_by

LOW, HIGH = np.full(2, -1.0), np.full(2, 1.0)
LINE: Message = {"low": LOW[:1], "high": HIGH[:1]}  # in one column a row can change values and squares by most at once
PLACES: Message = {"centroids": np.array([[-0.5, 0.0], [0.5, 0.0]]), "radii": np.full(2, 0.4), "share": np.array(0.45)}
ALONG: Message = {
    "middle": np.zeros(2),
    "axes": np.array([[0.8, 0.6], [-0.6, 0.8]]),
    "half": np.ones(2),
    "shape": np.array([4, 2]),
}
#: Round components, of which a row beyond one changes the sums by most.
MIXED: Message = {
    "centroids": np.array([[-0.5, 0.0], [0.5, 0.5]]),
    "weights": np.full(2, 0.5),
    "factors": np.full((2, 2), 0.2),
    "moments": np.array(2),
    "share": np.array(0.45),
}
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
ONE_MORE = np.concatenate([ROWS, [[1.0, 1.0]]])


class Attacked(NamedTuple):
    """A release: who makes it, what the server sends for it, its message as what was noised, of how many columns, how many sites.

    Of a masked sum the attacker knows what one of its sites sent, and the total.
    """

    executor: ClusteringExecutor
    step: str
    arrays: Message
    of: Callable[[Message], FloatArray]
    d: int = 2
    sites: int = 0


def moments(message: Message) -> FloatArray:
    return dp_sums.UNIT * np.concatenate([np.atleast_1d(message[name]) for name in ("rows", "values", "squares")])


def second_moments(message: Message) -> FloatArray:
    scaled = ROW_UNIT * message["rows"], VALUE_UNIT * message["values"], SQUARE_UNIT * message["products"]
    return np.concatenate([np.atleast_1d(part) for part in scaled])


def sums(message: Message) -> FloatArray:
    scaled = (dp_sums.UNIT * message["shifts"], dp_sums.COUNT * message["rows"], dp_sums._SQUARE * message["squares"])
    return np.concatenate([part.ravel() for part in scaled])


def mixed(message: Message) -> FloatArray:
    scales = mixture_sums.COUNT, dp_sums.UNIT, mixture_sums.SQUARE
    scaled = (scale * message[name] for scale, name in zip(scales, ("rows", "shifts", "m2"), strict=True))
    return np.concatenate([part.ravel() for part in scaled])


def job(share: float) -> float:
    """Return the epsilon of a job of which a release of this share claims EPSILON."""
    return accounting.epsilon_of(accounting.rho_of(EPSILON, DELTA) / share, DELTA)


RELEASES = {
    "cells": Attacked(
        DPOneShotExecutor(1, epsilon=job(GRID_SHARE), delta=DELTA, cells=16),
        StepName.CLUSTER,
        {},
        lambda message: message["cells"],
    ),
    "moments": Attacked(
        DPLloydExecutor(2, epsilon=job(MOMENTS_START), delta=DELTA, rounds=1), OUTLINE, LINE, moments, d=1
    ),
    "second moments": Attacked(
        DPLloydExecutor(2, epsilon=job(MOMENTS_START), delta=DELTA, rounds=1), SECOND_MOMENTS, LINE, second_moments, d=1
    ),
    "cells along axes": Attacked(
        DPLloydExecutor(2, epsilon=job(AXES_START), delta=DELTA, rounds=1),
        AXES,
        ALONG,
        lambda message: message["cells"],
    ),
    "update of four sites, one of them the attacker's": Attacked(
        DPLloydExecutor(2, epsilon=job(0.45), delta=DELTA, rounds=1), UPDATE, PLACES, sums, sites=4
    ),
    "iteration": Attacked(
        DPGMMExecutor(2, epsilon=job(0.45), delta=DELTA, covariance="spherical"), EXPECTATION, MIXED, mixed
    ),
    "update": Attacked(DPLloydExecutor(2, epsilon=job(0.45), delta=DELTA, rounds=1), UPDATE, PLACES, sums),
}


def reported(attacked: Attacked, data: FloatArray) -> FloatArray:
    """Return what a site with these rows sends, once, through all that it does in earnest but the ledger."""
    epsilon = attacked.executor.params.epsilon
    dp = DifferentialPrivacy((-1.0, 1.0), epsilon, DELTA, epsilon)
    terms = DPSession(
        Box(LOW[: attacked.d], HIGH[: attacked.d]),
        dp,
        "job",
        Free.in_memory(),
        accounting.rho_of(epsilon, DELTA),
        attacked.sites,
    )
    task = Task(attacked.step, 0, attacked.arrays, "site-1")
    rows, rng = data[:, : attacked.d], stream(0, 0, "site-1")
    context = SiteContext(dp=terms, sum_sites=attacked.sites)

    def sent(rows: FloatArray) -> FloatArray:
        return attacked.of(computed(attacked.executor, task, rows, rng, context=context))

    others = attacked.sites - _usual(attacked.sites) - 1  # they tell nobody; what they have in all is known here
    return sent(rows) + sum(sent(rows[:1]) for _ in range(others)) if attacked.sites else sent(rows)


def proven(what: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the epsilon that an attack proves with the confidence SURE."""
    attacked = RELEASES[what]
    with monkeypatch.context() as exact:
        exact.setattr(mechanism, "gaussian", lambda values, sensitivity, rho: values)
        exact.setattr(mechanism, "share", lambda values, scale: values)
        direction = reported(attacked, ONE_MORE) - reported(attacked, ROWS)
    without, added = (
        np.array([direction @ reported(attacked, data) for _ in range(runs)]) for data in (ROWS, ONE_MORE)
    )
    return proven_by(without, added)


@pytest.mark.slow  # thousands of runs
@pytest.mark.parametrize("what", RELEASES)
def test_an_attack_proves_no_more_than_is_claimed(what, monkeypatch):
    assert proven(what, 1500, monkeypatch) < EPSILON


@pytest.mark.nightly  # thousands of runs; tests/unit/algorithms/test_dp_check.py has the checks of sensitivities
@pytest.mark.parametrize("what", RELEASES)
def test_the_attack_would_notice_half_the_noise(what, monkeypatch):
    draw, draw_share = mechanism.gaussian, mechanism.share
    monkeypatch.setattr(mechanism, "share", lambda values, scale: draw_share(values, scale / 2))
    monkeypatch.setattr(mechanism, "gaussian", lambda values, sensitivity, rho: draw(values, sensitivity / 2, rho))
    assert proven(what, 4000, monkeypatch) > EPSILON
