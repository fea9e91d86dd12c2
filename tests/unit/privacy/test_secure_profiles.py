"""Profiles with secure sums: totals over all rows, so that no total less another one is the row of a small cluster."""

from collections.abc import Mapping

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.core.lloyd import assign
from flareclust.core.profiles import moments
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.exchanges import SecureExchanges
from flareclust.federation.profile_exchanges import added_up
from flareclust.privacy.enforcement import PolicyEnforcer
from flareclust.privacy.policy import Policy
from flareclust.protocol import cluster_arrays
from flareclust.protocol.registry import get
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName, Task
from tests.computed import computed
from tests.unit.privacy.secure_cases import asker, lloyd_sites

START = [[0.0, 0.0], [10.0, 0.0], [30.0, 40.0]]
ALONE = np.array([31.5, 41.25])


def sites() -> dict[str, FloatArray]:
    """Return the rows of three sites: two clusters, and one row far from both at the second site."""
    rng = np.random.default_rng(3)
    rows = {f"site-{i}": rng.normal([[0, 0], [10, 0]] * 20, 1.0, size=(40, 2)) for i in range(3)}
    rows["site-1"] = np.vstack([rows["site-1"], ALONE])
    return rows


@pytest.fixture
def totals(monkeypatch) -> list[tuple[str, Message]]:
    """Collect what the server learns: the totals by step."""
    seen: list[tuple[str, Message]] = []
    total_of = SecureExchanges._total

    def recorded(self, schema, step, round_):
        seen.append((step, total := total_of(self, schema, step, round_)))
        return total

    monkeypatch.setattr(SecureExchanges, "_total", recorded)
    return seen


def run(rows: Mapping[str, FloatArray], **more: object) -> flareclust.Result:
    return flareclust.run("lloyd", rows, k=3, start=START, tol=0.0, secure_sums=True, profile=True, **more)


def everything(groups: Message) -> FloatArray:
    return np.asarray(groups["counts"] @ groups["centroids"])


def test_no_total_less_another_one_is_the_row_of_a_small_cluster(totals):
    rows = sites()
    result = run(rows)
    own = {step: total for step, total in totals if step in (StepName.PROFILE_TOTALS, "update")}  # the last of each
    assert result.arrays[cluster_arrays.ROWS].tolist()[2] == 0
    assert result.arrays[cluster_arrays.ROWS].sum() == sum(map(len, rows.values()))
    # What a server has: sums of all rows by group, in the last round and in the profile. Nothing moved between them.
    np.testing.assert_allclose(everything(own[StepName.PROFILE_TOTALS]), everything(own["update"]), rtol=1e-12)
    for name in ("cluster", "counts"):
        np.testing.assert_array_equal(own[StepName.PROFILE_TOTALS][name], own["update"][name])
    np.testing.assert_allclose(own[StepName.PROFILE_TOTALS]["centroids"], own["update"]["centroids"], rtol=1e-12)
    # The attack would succeed on a profile that leaves out what is too small, as one without secure sums does.
    labels = {site: assign(X, result.centroids)[0] for site, X in rows.items()}
    names = ("cluster", "counts", "centroids", "m2")
    parts = [dict(zip(names, moments(X, labels[site], 3, 2), strict=True)) for site, X in rows.items()]
    counts, _, means, _ = added_up(parts, 3, 2)
    np.testing.assert_allclose(everything(own["update"]) - counts @ means, ALONE, rtol=1e-9)


def test_all_groups_that_a_server_can_add_and_subtract_hold_more_than_the_floor(totals):
    """Sets of rows in the totals of the last round, the assessment's scatter aside, and the profile: what their differences are."""
    rows = sites()
    result = run(rows)
    pooled = np.concatenate(list(rows.values()))
    large = np.flatnonzero(result.arrays[cluster_arrays.ROWS])
    groups = large[assign(pooled, result.centroids[large])[0]]
    sets = np.array([groups == c for c in large], dtype=float)
    small = (assign(pooled, result.centroids)[0] == 2).astype(float)
    both = np.linalg.matrix_rank(np.vstack([sets, small]))
    assert both == np.linalg.matrix_rank(sets) + 1  # the small cluster is no combination of them


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_moments_are_those_of_all_rows_by_the_nearest_large_cluster(scale):
    rows = sites()
    result = run(rows, scale=scale)
    pooled = np.concatenate([rows[site] for site in sorted(rows)])
    large = np.flatnonzero(result.arrays[cluster_arrays.ROWS])
    unit = result.arrays.get("deviation", np.ones(2))
    labels = large[assign(pooled / unit, result.centroids[large] / unit)[0]]
    for c in large:
        own = pooled[labels == c]
        assert result.arrays[cluster_arrays.ROWS][c] == len(own)
        np.testing.assert_allclose(result.arrays[cluster_arrays.MEANS][c], own.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(result.arrays[cluster_arrays.SQUARES][c], own.var(axis=0) * len(own), rtol=1e-9)
    frame = result.profiles()
    assert frame.query("cluster == @large[0]")["sd"].notna().all()
    assert frame["median"].isna().all()
    assert result.profiles("sites").empty
    assert result.profiles("tree").empty


def test_nothing_of_a_profile_leaves_a_site_unmasked():
    rows = sites()
    honest, seen = asker(rows, lloyd_sites(rows, 3)), []

    def ask(step, round_, arrays, asked):
        replies = honest(step, round_, arrays, asked)
        seen.extend((step, reply.arrays) for reply in replies.values())
        return replies

    outcome = run_federation(
        LloydAggregator(3, seed=2), ask, list(rows), FederationOptions(secure_sums=True, profile=True)
    )
    of_profile = [arrays for step, arrays in seen if step in StepName.PROFILING]
    assert {step for step, _ in seen if step in StepName.PROFILING} == {
        StepName.OWN_CLUSTERS,
        StepName.PROFILE_TOTALS,
        StepName.PROFILE_TOTALS_COUNTS,
    }
    assert all(set(arrays) == {"masked", SECONDS} for arrays in of_profile)
    assert outcome.arrays[cluster_arrays.ROWS].sum() == 121


def test_a_site_that_drops_out_leaves_the_result_without_a_profile():
    rows = sites()
    honest = asker(rows, lloyd_sites(rows, 3))

    def ask(step, round_, arrays, asked):
        replies = dict(honest(step, round_, arrays, asked))
        if step == StepName.PROFILE_TOTALS:
            replies.pop("site-1")
        return replies

    outcome = run_federation(
        LloydAggregator(3, seed=2), ask, list(rows), FederationOptions(secure_sums=True, profile=True)
    )
    assert not any(name.startswith("profile_") for name in outcome.arrays)
    assert [text for text in outcome.warnings if text.startswith("the clusters have no profile: site-1 did not answer")]
    assert outcome.metrics


@pytest.mark.parametrize(
    ("params", "step"),
    [
        ({}, "profile"),
        ({}, "profile_bins"),
        ({"missing": "mean"}, StepName.PROFILE_TOTALS),
        ({"trim_rows": 0.1}, StepName.PROFILE_TOTALS),
    ],
)
def test_a_site_describes_nothing_else_in_such_a_job(params, step):
    executor = get("lloyd").build(3, 0, params)[0]
    rows = np.random.default_rng(0).normal(size=(50, 2))
    task = Task(step, 0, {"centroids": rows[:3]}, "site-1")
    question = {"edges": np.zeros((2, 1)), "leaves": np.array([0])}
    question |= {name: np.zeros(15, dtype=np.int64) for name in ("split_column", "split_edge")}
    task.arrays.update(question if step == "profile_bins" else {})
    context = SiteContext(2, secure=True, reported=np.ones(3, dtype=bool))
    with pytest.raises(Refusal, match=r"describes no clusters|does not go with its job"):
        computed(executor, task, rows, np.random.default_rng(0), context=context)


def test_a_site_asked_for_totals_without_masks_refuses():
    executor = get("lloyd").build(3, 0, {})[0]
    task = Task(
        StepName.PROFILE_TOTALS, 0, {"centroids": np.zeros((3, 2)), "reported": np.ones(3, dtype=np.int64)}, "site-1"
    )
    with pytest.raises(Refusal, match="lets out sums only masked"):
        executor.answer(task, np.random.default_rng(0).normal(size=(50, 2)), never_abort)


def test_a_policy_lets_totals_out_after_the_assessment_only():
    gate, arrays = PolicyEnforcer(Policy()), {"centroids": np.zeros((2, 3))}
    gate.check_request(StepName.CLUSTER, 0, {})
    with pytest.raises(Refusal, match="too late"):
        gate.check_request(StepName.PROFILE_TOTALS, 1, arrays)
    gate.check_request(StepName.ASSESS, 1, arrays)
    gate.check_request(StepName.PROFILE_TOTALS_COUNTS, 1, arrays)
    gate.check_request(StepName.PROFILE_TOTALS, 1, arrays)
    with pytest.raises(Refusal, match="before"):
        gate.check_request(StepName.PROFILE_TOTALS, 1, arrays)


def test_a_policy_describes_the_groups_of_rows_that_the_rounds_did(totals):
    run(sites(), policy={"min_count": 5})
    own = {step: total for step, total in totals if step in (StepName.PROFILE_TOTALS, "update")}
    np.testing.assert_array_equal(own[StepName.PROFILE_TOTALS]["counts"], own["update"]["counts"])
    np.testing.assert_allclose(own[StepName.PROFILE_TOTALS]["centroids"], own["update"]["centroids"], rtol=1e-12)
