"""What a private job says of its own noise: signal beside noise, shares of the budget, rows beyond the bounds."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.typing import never_abort
from flareclust.core.dp import sums as dp_sums
from flareclust.executors.dp_lloyd import BOUNDS
from flareclust.executors.dp_oneshot import GRID_SHARE
from flareclust.experiment.reports import terminal
from flareclust.experiment.reports.summary import budget_split
from flareclust.federation.server import ServerJob
from flareclust.privacy.dp.assessment import noisy_metrics
from flareclust.privacy.dp.server import BUDGET_SHARE, NoisyState, noise_of
from flareclust.privacy.dp.site import ASSESSMENT_SHARE
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol import cluster_arrays
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests.unit.algorithms.dp_cases import PRIVATE, policy
from tests.unit.privacy.dp_attacks import Free

LOUD = {"epsilon": 8.0, "policy": policy(epsilon=8.0, budget=8.0)}


@pytest.fixture
def wide(rng) -> dict[str, np.ndarray]:
    """Three sites with rows of eight columns about four points."""
    points = rng.uniform(-10, 10, size=(4, 8))
    return {f"site-{i}": points[rng.integers(0, 4, 600)] + rng.normal(size=(600, 8)) for i in range(3)}


def test_the_noise_s_own_part_of_a_mean_square_is_taken_out(rng):
    assert dp_sums.signal_to_noise(np.array([3.0, -4.0]), 1.0) == pytest.approx(np.sqrt(11.5))
    assert dp_sums.signal_to_noise(np.array([0.5, 0.5]), 1.0) == 0
    assert dp_sums.signal_to_noise(rng.normal(0, 7, size=10**5), 7.0) < 0.1


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dp-lloyd", {}), ("dp-lloyd", {"start": "spread"}), ("dp-lloyd", {"start": "axes"}), ("dp-oneshot", {})],
)
@pytest.mark.parametrize("columns", [2, 8])
def test_each_noisy_exchange_has_its_signal_and_its_share_of_the_budget(name, settings, columns, sites, wide):
    rows = sites if columns == 2 else wide
    result = flareclust.run(name, rows, k=4, **settings, **LOUD)
    noisy = [record for record in result.outcome.rounds if record["step"] not in (BOUNDS, StepName.ASSESS)]
    assert all(record["diagnostics"][cluster_arrays.SIGNAL] > 0.5 for record in noisy)
    spent = sum(record["diagnostics"][BUDGET_SHARE] for record in noisy)
    assert spent + ASSESSMENT_SHARE == pytest.approx(1)
    assert result.metrics["inertia_signal_to_noise"] >= 0  # of one noisy number, which may come out as 0
    assert result.outcome.rounds[0]["diagnostics"]["rows_needed"] < sum(map(len, rows.values()))


def test_the_inertia_of_loud_clusters_stands_out_of_its_noise_in_most_runs(sites):
    """One run in six has a noisy number below its deviation, so a single one says nothing."""
    found = [flareclust.run("dp-lloyd", sites, k=4, **LOUD).metrics["inertia_signal_to_noise"] for _ in range(25)]
    assert np.median(found) > 1


def test_the_split_of_the_budget_is_printed(sites, capsys):
    result = flareclust.run("dp-lloyd", sites, k=4, **LOUD)
    assert budget_split(result) == "second_moments 20 %, axes 25 %, update 3 x 16.7 %, assess 5 %"
    terminal.print_result(result)
    assert (
        "privacy budget by step: second_moments 20 %, axes 25 %, update 3 x 16.7 %, assess 5 %"
        in capsys.readouterr().out
    )
    assert budget_split(flareclust.run("pooled", sites, k=4)) == ""


def test_a_one_shot_result_says_where_noise_was_as_large_as_clusters(sites, wide):
    for rows in (sites, wide):
        faint = flareclust.run("dp-oneshot", rows, k=4, epsilon=0.02, policy=policy(epsilon=0.02))
        [warning] = [text for text in faint.warnings if "noise moves a centroid" in text]
        assert "times as many rows" in warning
        assert "secure_sums" not in warning  # which this algorithm adds all noise under
    assert not flareclust.run("dp-oneshot", sites, k=4, **LOUD).warnings


@pytest.mark.parametrize("name", PRIVATE)
def test_a_result_of_few_rows_beside_those_needed_says_so(name, sites):
    """Clusters of unequal sizes need several times as many rows as equal ones, and none of the noisy numbers may show it."""
    few = {site: X[::6] for site, X in sites.items()}
    found = flareclust.run(name, few, k=4, **LOUD).warnings
    assert len(found) == 1
    assert "clusters of equal sizes stand out of noise from about" in found[0] or "noise moves a centroid" in found[0]
    assert "times as many rows" in found[0]
    assert not flareclust.run(name, sites, k=4, **LOUD).warnings


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
        return flareclust.run("dp-lloyd", far, k=4, secure_sums=secure_sums, **LOUD)

    found = beyond(0.3)
    assert found.metrics["clipped_share"] == pytest.approx(0.3, abs=0.1)
    [warning] = [text for text in found.warnings if "beyond the bounds" in text]
    assert "widened" in warning
    few = beyond(0.0)
    assert few.metrics["clipped_share"] is None or few.metrics["clipped_share"] < 0.1


# Noise alone, and known spreads


@pytest.fixture
def faint(rng) -> dict[str, np.ndarray]:
    """Forty sites of twenty rows without clusters, in eight columns."""
    return {f"site-{i}": rng.uniform(-10, 10, size=(20, 8)) for i in range(40)}


@pytest.mark.parametrize(
    ("name", "settings"),
    [("dp-lloyd", {"start": "spread"}), ("dp-lloyd", {"start": "axes"}), ("dp-oneshot", {})],
)
def test_noise_alone_is_no_signal_whatever_the_number_of_sites(name, settings, faint):
    result = flareclust.run(name, faint, k=4, epsilon=0.02, policy=policy(epsilon=0.02), **settings)
    signals = [
        record["diagnostics"][cluster_arrays.SIGNAL]
        for record in result.outcome.rounds
        if cluster_arrays.SIGNAL in record["diagnostics"]
    ]
    assert max(signals) < dp_sums.CLEAR
    assert result.metrics["inertia_signal_to_noise"] < 4  # of one normal number, cut at 0
    assert any("noise moves a centroid" in text for text in result.warnings)


def test_the_signal_of_inertia_is_over_the_spread_that_it_has(sites):
    executor, server = get("dp-lloyd").build(4, 0, {"epsilon": 8.0})
    centers = np.array([[10.0, 10, -10], [-10, 10, -10], [10, -10, 10], [-10, -10, 10]])
    round_ = Round(
        {"centroids": centers, cluster_arrays.REACH: np.array(6.0)},
        state=NoisyState(960.0, 2),
    )
    found = []
    for _ in range(300):
        replies = [answered(executor, round_, sites[site]) for site in ("site-1", "site-2")]
        sums = {name: np.sum([reply[name] for reply in replies], axis=0) for name in replies[0]}
        found.append(ServerJob(server).quality(round_, sums))
    inertias = np.array([metrics["inertia"] for metrics in found])
    assert inertias.mean() / inertias.std() == pytest.approx(found[0]["inertia_signal_to_noise"], rel=0.25)


@pytest.mark.parametrize(("k", "rows", "silhouette"), [(2, 200.0, 0.6), (2, 0.5, None), (1, 200.0, None)])
def test_the_silhouette_is_the_mean_of_a_row_where_there_are_two_clusters(k, rows, silhouette):
    server = get("dp-lloyd").build(k, 0, {"epsilon": 8.0})[1]
    round_ = Round({"centroids": np.eye(k), cluster_arrays.REACH: np.array(1.0)}, state=NoisyState(rows, 2))
    sums = {"sse": np.array(50.0), "silhouette": np.array(120.0), "clipped": np.array(0.0)}
    assert noisy_metrics(server.params, round_, sums)["simplified_silhouette"] == silhouette


def answered(executor, round_, rows):
    site = SiteSession(Policy.of(policy(epsilon=8.0, budget=8.0)), "a", Free.in_memory())
    return executor.answer(Task(StepName.ASSESS, 0, round_.task, "site-1"), rows, never_abort, site).arrays


def test_the_signal_of_a_cluster_of_cells_is_its_rows_over_the_noise_of_their_sum():
    server = get("dp-oneshot").build(1, 0, {"epsilon": 8.0, "cells": 25})[1]
    reply = {"low": np.zeros(2), "high": np.ones(2), "radius": np.array(1.0), "cells": np.full(25, 1000.0)}
    merged = server.merge(server.begin(), {"a": reply}, np.random.default_rng(0))
    assert merged.diagnostics[cluster_arrays.SIGNAL] == pytest.approx(
        25_000 / (5 * noise_of(server.params, 1.0, GRID_SHARE, 1))
    )


def test_rows_on_the_surface_of_a_ball_are_within_it(rng):
    """As embeddings are that were normalised in float32."""
    rows = rng.normal(size=(300, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    bounds = {"norm": 1.0, "center": 0}
    sites = {f"site-{i}": rows[i::3].astype(np.float64) for i in range(3)}
    result = flareclust.run("dp-lloyd", sites, k=2, epsilon=8.0, policy=policy(bounds=bounds, epsilon=8.0, budget=8.0))
    assert result.metrics["clipped_share"] is None
