"""Federations of the differentially private algorithms: clusters, budgets, bounds, and figures on S1."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

import flareclust
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.lloyd import assign
from flareclust.engines import inprocess
from flareclust.executors.dp_lloyd import BOUNDS, SECOND_MOMENTS, DPLloydExecutor
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.dp.server import NoisyState, poor_signal
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests.unit.algorithms.dp_cases import PRIVATE, policy

# Federations


@pytest.mark.parametrize("name", PRIVATE)
def test_a_site_without_terms_says_what_it_must_do(name, sites):
    executor, aggregator = get(name).build(4, 0, {})
    with pytest.raises(Refusal, match=r"states bounds of the columns and a budget .* \(flareclust site policy\)"):
        executor.answer(Task(aggregator.begin().step, 0, {}, "site-1"), sites["site-1"], never_abort)


def test_a_site_with_terms_lets_out_nothing_else(sites):
    with pytest.raises(JobFailed, match="differentially private numbers only"):
        flareclust.run("lloyd", sites, k=4, policy=policy())


@pytest.mark.parametrize("name", PRIVATE)
def test_a_job_within_its_terms_finds_clusters_and_spends_what_it_asks_for(name, sites, monkeypatch):
    ledgers = []
    monkeypatch.setattr(Ledger, "in_memory", classmethod(lambda cls: ledgers.append(cls(None)) or ledgers[-1]))
    result = flareclust.run(name, sites, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0))
    assert not result.warnings
    assert result.metrics["inertia"] < 30 * 960  # a row is 3 from its own center on the average, and 400 from the next
    asked = accounting.rho_of(8.0, 1e-5)
    assert len(ledgers) == len(sites)
    for ledger in ledgers:
        assert 0.99 * asked < ledger.spent().total <= asked


def test_a_budget_that_is_used_up_ends_the_next_job(sites, monkeypatch):
    ledger = Ledger.in_memory()
    monkeypatch.setattr(Ledger, "in_memory", classmethod(lambda cls: ledger))
    site = {"site-1": np.concatenate(list(sites.values()))}
    result = flareclust.run("dp-oneshot", site, k=4, epsilon=1.0, policy=policy(epsilon=1.0, budget=1.2))
    assert len(result.centroids)
    monkeypatch.setattr(inprocess, "_JOB", "the next one")
    with pytest.raises(JobFailed, match=r"of its budget of 1\.2 for all jobs"):
        flareclust.run("dp-oneshot", site, k=4, epsilon=1.0, policy=policy(epsilon=1.0, budget=1.2))


def test_a_site_computes_products_of_512_columns_at_most():
    """docs/algorithms/dp-lloyd.md: with more than 512 columns the squares only."""
    session = SiteSession(Policy.of(policy()), "a", Ledger.in_memory())
    rows = np.random.default_rng(0).normal(size=(50, 513))

    def answer(d):
        task = Task(SECOND_MOMENTS, 1, {"low": np.full(d, -20.0), "high": np.full(d, 20.0)}, "site-1")
        return DPLloydExecutor(2).answer(task, rows[:, :d], never_abort, session)

    assert answer(512).arrays["products"].shape == (512 * 513 // 2,)
    with pytest.raises(Refusal, match=r"has 513 columns, too many for second moments \(512\)"):
        answer(513)


def test_more_columns_than_a_float_can_count_cells_of():
    rng = np.random.default_rng(0)
    sites = {site: rng.normal(size=(60, 600)) + 5 * rng.integers(2, size=(60, 1)) for site in "ab"}
    result = flareclust.run("dp-lloyd", sites, k=2, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0))
    assert result.centroids.shape == (2, 600)


def test_a_job_without_assessment_keeps_that_share(sites):
    result = flareclust.run("dp-lloyd", sites, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0), rounds=1)
    assert result.rounds == 4  # bounds, second moments, cells, one update


def test_rows_beyond_the_bounds_count_at_the_bounds_and_a_few_are_no_warning(sites):
    far = {site: np.where(np.arange(len(rows))[:, None] % 50 == 0, 1e6, rows) for site, rows in sites.items()}
    result = flareclust.run("dp-lloyd", far, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0))
    assert np.abs(result.centroids).max() <= 20
    assert not result.warnings


def test_the_number_of_placed_rows_is_not_disclosed(sites):
    rows = sites["site-1"]
    held = SiteSession(Policy.of(policy()), "a", Ledger.in_memory())
    answer = DPLloydExecutor(4).answer(
        Task(StepName.PLACE, 0, {"centroids": rows[:4]}, "site-1"), rows, never_abort, held
    )
    assert answer.arrays["rows"] == 0
    assert answer.arrays["seconds"] == 0, "the time that it took follows from the rows, too"
    assert answer.labels is not None
    assert len(answer.labels) == len(rows)


@pytest.mark.parametrize("bounds", [(0.0, 1e-200), (1.0e141, 1.1e141), (-1e60, 1e60), (0.0, 5e-324)])
@pytest.mark.parametrize(("name", "step"), [("dp-lloyd", BOUNDS), ("dp-oneshot", StepName.CLUSTER)])
def test_bounds_that_nothing_can_be_computed_with_are_refused_by_the_site_that_has_them(name, step, bounds):
    ledger = Ledger.in_memory()
    executor = get(name).build(3, 0, {})[0]
    with pytest.raises(
        Refusal, match=r"half their diagonal must be from 1e-90 to 1e\+60\); correct them in the site's policy"
    ):
        executor.answer(
            Task(step, 0, {}, "s"),
            np.zeros((9, 2)),
            never_abort,
            SiteSession(Policy.of(policy(bounds=bounds)), "a", ledger),
        )
    assert ledger.spent().total == 0


@pytest.mark.parametrize("d", [2, 7])
@pytest.mark.parametrize("bounds", [(-1e59, 1e59), (0.0, 1e-89), (1e66, 1.0000001e66)])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_federation_with_extreme_bounds_ends_with_centroids_within_them(name, bounds, d, rng):
    low, high = bounds
    rows = {site: np.clip(rng.uniform(low, high, size=(40, d)), low, high) for site in ("a", "b")}
    for epsilon in (8.0, 1000.0):
        own = policy(bounds=bounds, epsilon=epsilon, budget=epsilon)
        result = flareclust.run(name, rows, k=3, epsilon=epsilon, policy=own)
        assert ((result.centroids >= low) & (result.centroids <= high)).all()
    assert all("noise alone makes up to" in text for text in result.warnings)  # a component of few rows
    away = (np.concatenate(list(rows.values()))[:, None] - result.centroids) / (high - low)
    # Of so large an epsilon hardly any noise is left; of 8 noise alone may make a fifth of the inertia, or five times it.
    assert 0.8 < result.metrics["inertia"] / (high - low) ** 2 / (away**2).sum(axis=2).min(axis=1).sum() < 1.25


# The real sets


@pytest.mark.parametrize(("name", "maximum"), [("dp-lloyd", 5.5e4), ("dp-oneshot", 8e4)])
def test_s1_with_epsilon_one_per_job(shared_data, name, maximum):
    """Ten sites of 500 rows. The optimum on the pooled rows is 0.96e4; a cluster that was missed would cost 1.5e5 or more."""
    l2 = [
        flareclust.run(
            name, data="s1", partition="iid", n_sites=10, seed=seed, epsilon=1.0, policy=policy(bounds=(0.0, 1e6))
        ).metrics["l2"]
        for seed in range(3)
    ]
    assert np.median(np.array(l2)) < maximum


def test_settings_survive_being_written_as_json():
    executor, aggregator = get("dp-oneshot").build(4, 1, json.loads(json.dumps({"epsilon": 0.5, "cells": 64})))
    assert (executor.params.epsilon, executor.params.cells, aggregator.params.epsilon, aggregator.params.cells) == (
        0.5,
        64,
        0.5,
        64,
    )


def _unequal(d: int, k: int) -> dict[str, np.ndarray]:
    """Return rows of k clusters, of 2 to 30 percent of all rows, at ten sites."""
    rng = np.random.default_rng(3)
    shares = np.geomspace(1, 15, k)
    centers, y = rng.normal(size=(k, d)) * 3, rng.choice(k, 12_000, p=shares / shares.sum())
    X = centers[y] + rng.normal(size=(12_000, d))
    return {f"site-{i}": X[i::10] for i in range(10)}


@pytest.mark.parametrize(("d", "k"), [(4, 12), (10, 8)])
def test_clusters_of_unequal_sizes_are_found_where_noise_is_small(d, k):
    """The median of three runs, as noise can hide a cluster in any one; the inertia of a miss is 1.15 times the best or more."""
    sites = _unequal(d, k)
    X = np.concatenate(list(sites.values()))
    best = KMeans(k, n_init=5, random_state=0).fit(X).inertia_
    terms = {"epsilon": 4.0, "policy": policy(bounds=(-12.0, 12.0), epsilon=4.0, budget=4.0)}
    found = [flareclust.run("dp-lloyd", sites, k=k, seed=i, secure_sums=True, **terms) for i in range(3)]
    assert np.median([assign(X, one.centroids)[1].sum() for one in found]) < 1.05 * best
    assert all(len(one.centroids) == k for one in found)


def test_a_cluster_whose_rows_noise_explains_is_named_with_what_helps():
    state = NoisyState(900.0, 2, signal_to_noise=np.array([9.0, 0.3, 8.0]))
    params = get("dp-lloyd").build(3, 0, {})[1].params
    [warning] = poor_signal(params, Round(state=state), 0)
    assert warning.startswith("1 of 3 clusters has hardly more rows than noise explains")
    assert "k=2" in warning
    assert not poor_signal(params, Round(state=replace(state, signal_to_noise=np.array([9.0, 8.0, 7.0]))), 0)


@pytest.mark.parametrize(("epsilon", "rows", "warned"), [(0.05, 100, True), (8.0, 1200, False)])
def test_clusters_that_are_no_better_than_one_mean_are_said_to_be(epsilon, rows, warned):
    """Noise may hide the inertia as well in a run or two."""
    sites = {site: X[:rows] for site, X in _unequal(16, 3).items()}
    terms = {"epsilon": epsilon, "policy": policy(bounds=(-12.0, 12.0), epsilon=epsilon, budget=epsilon)}
    found = [flareclust.run("dp-lloyd", sites, k=3, seed=i, **terms).warnings for i in range(8)]
    said = sum(any("not clearly better than a single mean of all rows" in text for text in one) for one in found)
    assert (said > 0) == warned


def test_a_reply_without_a_product_for_any_two_columns_is_that_site_s_fault():
    schema = DPLloydExecutor.steps[SECOND_MOMENTS].schema
    reply = {"rows": np.array(9.0), "values": np.ones(3), "products": np.ones(6)}
    assert schema.check(reply) == {"d": 3, "t": 6}
    with pytest.raises(BadMessage, match="products: expected one for any two of 3 columns, got 4"):
        schema.check(reply | {"products": np.ones(4)})
