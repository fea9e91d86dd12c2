"""The check of the promise differentially-private notices what is wrong."""

import math

import numpy as np
import pytest

from flareclust.core.dp import axes
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.federation import stages
from flareclust.privacy.dp import mechanism
from flareclust.protocol.registry import get
from flareclust.testing import ContractViolation
from flareclust.testing import differential_privacy as checks_private
from tests.unit.algorithms.dp_cases import PRIVATE


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("cluster_sensitivity", lambda: math.hypot(dp_sums.UNIT, dp_sums.COUNT) * 0.99),
        ("quality_sensitivity", lambda: dp_sums.UNIT * 0.9),
    ],
)
def test_the_check_notices_a_sensitivity_that_is_too_small(name, place, wrong, monkeypatch):
    monkeypatch.setattr(dp_sums, place, wrong)
    with pytest.raises(ContractViolation, match="a row changed sums"):
        checks_private.check_differentially_private(get(name))


@pytest.mark.parametrize(
    ("name", "module", "place", "wrong"),
    [
        ("dp-oneshot", dp_sums, "moment_sensitivity", dp_sums.UNIT),
        ("dp-lloyd", axes, "second_moment_sensitivity", 0.98 * axes.second_moment_sensitivity()),
    ],
)
def test_the_check_notices_moments_with_too_small_a_sensitivity(name, module, place, wrong, monkeypatch):
    monkeypatch.setattr(module, place, lambda: wrong)
    with pytest.raises(ContractViolation, match="a row changed sums"):
        checks_private.check_differentially_private(get(name))


def test_the_check_notices_rows_that_are_not_clipped(monkeypatch):
    monkeypatch.setattr(dp_sums, "whole", lambda vectors: (vectors * 1.01 * dp_sums.UNIT).astype(np.int64))
    with pytest.raises(ContractViolation, match="a row changed sums"):
        checks_private.check_differentially_private(get("dp-lloyd"))


def test_the_check_notices_noise_from_the_seed(monkeypatch):
    rng = np.random.default_rng

    def seeded(values, sensitivity, rho):
        return values + np.rint(rng(0).normal(0, 1e5, values.shape)).astype(np.int64)

    monkeypatch.setattr(mechanism, "gaussian", seeded)
    with pytest.raises(ContractViolation, match="the same noise came twice"):
        checks_private.check_differentially_private(get("dp-oneshot"))


def test_the_check_notices_a_box_that_is_too_small_to_compute_with(monkeypatch):
    """As it was once: every row gave NaN, which turned into the least integer, and sums disclosed whether n is odd."""
    old = property(
        lambda box: bool((box.low < box.high).all() and np.isfinite(box.low).all() and np.isfinite(box.half))
    )
    monkeypatch.setattr(Box, "usable", old)
    monkeypatch.setattr(dp_sums, "whole", lambda vectors: (vectors * dp_sums.UNIT).astype(np.int64))
    with pytest.raises(ContractViolation, match=r"not finite|a row changed sums"):
        checks_private.check_differentially_private(get("dp-lloyd"))


@pytest.mark.parametrize("name", PRIVATE)
def test_the_check_notices_a_refusal_for_values_beyond_the_bounds(name, monkeypatch):
    monkeypatch.setattr(
        stages, "_check_rows", lambda data, *, private, gaps, check=stages._check_rows: check(data, private=False)
    )
    with pytest.raises(ContractViolation, match="a row changes whether a site answers"):
        checks_private.check_differentially_private(get(name))


@pytest.mark.parametrize("name", PRIVATE)
def test_the_check_notices_a_reach_without_limits(name, monkeypatch):
    monkeypatch.setattr(dp_sums, "LARGEST_RADIUS", 1e300)
    with pytest.raises(ContractViolation, match="not finite"):
        checks_private.check_differentially_private(get(name))
