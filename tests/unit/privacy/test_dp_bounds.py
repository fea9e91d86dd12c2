"""Bounds that are a ball: what policies state, and what a row then counts."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.privacy.dp.budget import bounds_of
from flareclust.privacy.policy import Policy
from tests.unit.algorithms.dp_cases import policy


@pytest.mark.parametrize(
    ("center", "columns", "middle"),
    [(0, None, [0, 0]), (2.5, None, [2.5, 2.5]), ([1, 2], None, [1, 2]), ({"b": 1, "a": 2}, ("a", "b"), [2, 1])],
)
def test_a_ball_has_a_public_center(center, columns, middle):
    bounds = Policy.of(policy(bounds={"norm": 3, "center": center})).dp.bounds
    box = bounds_of(bounds, columns, 2)
    assert box.middle.tolist() == middle
    assert box.half == 3
    again = Policy.of(Policy.of(policy(bounds={"norm": 3, "center": center})).to_json()).dp.bounds
    assert again == bounds


def test_a_column_may_be_called_norm():
    box = bounds_of(Policy.of(policy(bounds={"norm": [0, 4], "b": [1, 2]})).dp.bounds, ("norm", "b"), 2)
    assert (box.low.tolist(), box.high.tolist()) == ([0, 1], [4, 2])


@pytest.mark.parametrize(
    "bounds",
    [{"norm": 0}, {"norm": -1}, {"norm": float("inf")}, {"norm": 1, "radius": 2}, {"norm": 1, "center": []}],
)
def test_balls_that_bound_nothing_are_refused(bounds):
    with pytest.raises(UserError, match="bounds"):
        Policy.of(policy(bounds=bounds))


@pytest.mark.parametrize("center", [[0, 0, 0], {"a": 0}])
def test_a_center_of_other_columns_is_refused(center):
    with pytest.raises(Refusal, match="center of its bounds"):
        bounds_of(Policy.of(policy(bounds={"norm": 1, "center": center})).dp.bounds, ("a", "b"), 2)


def test_rows_beyond_the_ball_count_as_the_nearest_point_of_it(rng):
    box = Box(np.full(3, -1.0), np.full(3, 3.0), 2.0)
    rows = rng.normal(1, 3, size=(200, 3))
    clipped = box.clip(rows)
    away = np.linalg.norm(clipped - 1, axis=1)
    assert away.max() <= 2 * (1 + 1e-12)
    inside = np.linalg.norm(rows - 1, axis=1) < 2
    np.testing.assert_array_equal(clipped[inside], rows[inside])
    far = box.clip(np.array([[1.0, 1.0, 2.9]]))
    np.testing.assert_allclose(far, [[1, 1, 2.9]])
    np.testing.assert_allclose(box.clip(np.array([[3.0, 3.0, 3.0]])), [[1 + 2 / np.sqrt(3)] * 3])


def test_a_ball_makes_noise_in_proportion_to_its_radius(rng):
    """Half the diagonal of the box about a ball is the root of the number of columns times its radius."""
    rows = rng.normal(size=(50, 16))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    ball, box = Box(np.full(16, -1.0), np.full(16, 1.0), 1.0), Box(np.full(16, -1.0), np.full(16, 1.0))
    assert box.half == pytest.approx(4 * ball.half)
    of_ball, of_box = (dp_sums.moment_sums(rows, one, one, never_abort)[1:17] for one in (ball, box))
    np.testing.assert_allclose(of_ball, 4 * of_box, atol=300)


def test_sites_may_have_different_balls():
    around = Box.around([Box(np.full(2, -1.0), np.full(2, 1.0), 1.0), Box(np.full(2, 0.0), np.full(2, 4.0), 2.0)])
    assert (around.low.tolist(), around.high.tolist()) == ([-1, -1], [4, 4])
    assert around.half == pytest.approx(np.sqrt(4.5) + 1)
    alike = Box(np.full(2, 0.0), np.full(2, 4.0), 2.0)
    assert Box.around([alike, alike]).half == 2


@pytest.mark.parametrize("name", ["dp-lloyd", "dp-oneshot", "dp-gmm"])
def test_a_federation_stays_within_its_ball(name, rng):
    rows = {site: rng.normal(5, 2, size=(60, 8)) for site in ("a", "b")}
    bounds = {"norm": 2.0, "center": 5.0}
    result = flareclust.run(name, rows, k=3, epsilon=8.0, policy=policy(bounds=bounds, epsilon=8.0, budget=8.0))
    assert (np.linalg.norm(result.centroids - 5, axis=1) <= 2 * (1 + 1e-9)).all()
