"""What a private job says of its own noise: signal beside noise, shares of the budget, rows beyond the bounds."""

import numpy as np
import pytest

import flareclust
from flareclust.aggregators.dp_base import BUDGET_SHARE, SIGNAL
from flareclust.core.dp.sums import signal_to_noise
from flareclust.executors.dp_base import ASSESSMENT_SHARE
from flareclust.executors.dp_lloyd import BOUNDS
from flareclust.experiment import report
from flareclust.experiment.budget_split import budget_split
from flareclust.protocol.registry import get
from flareclust.protocol.task import ASSESS
from tests.unit.algorithms.dp_cases import PRIVATE, policy

CLEAR = {"epsilon": 8.0, "policy": policy(epsilon=8.0, budget=8.0)}


@pytest.fixture
def wide(rng) -> dict[str, np.ndarray]:
    """Three sites with rows of eight columns about four points."""
    points = rng.uniform(-10, 10, size=(4, 8))
    return {f"site-{i}": points[rng.integers(0, 4, 600)] + rng.normal(size=(600, 8)) for i in range(3)}


def test_the_noise_s_own_part_of_a_mean_square_is_taken_out(rng):
    assert signal_to_noise(np.array([3.0, -4.0]), 1.0) == pytest.approx(np.sqrt(11.5))
    assert signal_to_noise(np.array([0.5, 0.5]), 1.0) == 0
    assert signal_to_noise(rng.normal(0, 7, size=10**5), 7.0) < 0.1


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dp-lloyd", {}), ("dp-lloyd", {"start": "spread"}), ("dp-lloyd", {"start": "axes"}), ("dp-oneshot", {})],
)
@pytest.mark.parametrize("columns", [2, 8])
def test_each_noisy_exchange_has_its_signal_and_its_share_of_the_budget(name, settings, columns, sites, wide):
    rows = sites if columns == 2 else wide
    result = flareclust.run(name, rows, k=4, **settings, **CLEAR)
    noisy = [record for record in result.outcome.rounds if record["step"] not in (BOUNDS, ASSESS)]
    assert all(record["diagnostics"][SIGNAL] > 0.5 for record in noisy)
    spent = sum(record["diagnostics"][BUDGET_SHARE] for record in noisy)
    assert spent + ASSESSMENT_SHARE == pytest.approx(1)
    assert result.metrics["inertia_signal_to_noise"] > 1
    assert result.outcome.rounds[0]["diagnostics"]["rows_needed"] < sum(map(len, rows.values()))


def test_the_split_of_the_budget_is_printed(sites, capsys):
    result = flareclust.run("dp-lloyd", sites, k=4, **CLEAR)
    assert budget_split(result) == "cluster 50 %, update 3 x 15 %, assess 5 %"
    report.print_result(result)
    assert "privacy budget by step: cluster 50 %, update 3 x 15 %, assess 5 %" in capsys.readouterr().out
    assert budget_split(flareclust.run("pooled", sites, k=4)) == ""


def test_a_one_shot_result_says_where_noise_was_as_large_as_clusters(sites, wide):
    for rows in (sites, wide):
        faint = flareclust.run("dp-oneshot", rows, k=4, epsilon=0.02, policy=policy(epsilon=0.02))
        [warning] = [text for text in faint.warnings if "noise moves a centroid" in text]
        assert "times as many rows" in warning
        assert "secure_sums" not in warning  # which this algorithm adds all noise under
    assert not flareclust.run("dp-oneshot", sites, k=4, **CLEAR).warnings


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("d", [2, 20])
def test_rows_needed_grow_with_clusters_and_fall_with_epsilon(name, d):
    def needed(**settings: object) -> int:
        return get(name).build(settings.pop("k", 4), 0, settings)[1].rows_needed(d, 10)

    assert 0 < needed(epsilon=8.0) < needed() < needed(k=8)


@pytest.mark.parametrize("secure_sums", [False, True])
def test_the_share_of_rows_beyond_the_bounds_is_estimated_and_a_large_one_is_a_warning(sites, secure_sums):
    def beyond(share: float) -> "flareclust.Result":
        far = {
            site: np.where((np.arange(len(rows)) < share * len(rows))[:, None], 1e6, rows)
            for site, rows in sites.items()
        }
        return flareclust.run("dp-lloyd", far, k=4, secure_sums=secure_sums, **CLEAR)

    found = beyond(0.3)
    assert found.metrics["clipped_share"] == pytest.approx(0.3, abs=0.1)
    [warning] = [text for text in found.warnings if "beyond the bounds" in text]
    assert "widened" in warning
    few = beyond(0.0)
    assert few.metrics["clipped_share"] is None or few.metrics["clipped_share"] < 0.1
