"""Federations of differentially private Gaussian mixtures: components, budgets, noise, lies of a server, and warnings."""

import math

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import flareclust
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core import mixtures
from flareclust.core.dp import mixture_sums
from flareclust.core.dp import mixtures as dp_mixtures
from flareclust.executors.dp_gmm import DPGMMExecutor
from flareclust.executors.gmm import EXPECTATION
from flareclust.privacy.dp import accounting, mechanism
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import Task
from tests.unit.algorithms.dp_cases import policy

KINDS = ("full", "tied", "diag", "spherical")
LOUD = {"epsilon": 8.0, "policy": policy(bounds=(-30.0, 30.0), epsilon=8.0, budget=8.0)}


def unequal(n: int = 4000) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return rows of a wide component and a narrow one near it, by site, together, and their components: k-means cuts the wide one."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) * np.where(y, 0.5, 3.0)[:, None] * [1, 2] + y[:, None] * [6, 0]
    return {f"site-{i}": X[i::4] for i in range(4)}, X, y


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_components_that_k_means_cuts_are_found_with_noise(kind):
    sites, X, y = unequal()
    result = flareclust.run("dp-gmm", sites, k=2, covariance=kind, **LOUD)
    theirs = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
    assert theirs.score(X) - mixtures.log_densities(X, result.arrays | {"centroids": result.centroids}).mean() < 0.02
    truth = np.concatenate([y[i::4] for i in range(4)])
    assert adjusted_rand_score(truth, result.labels) > 0.9
    assert adjusted_rand_score(truth, flareclust.run("dp-lloyd", sites, k=2, **LOUD).labels) < 0.7


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_has_a_mixture_and_rows_go_to_the_most_probable_component(kind, sites):
    result = flareclust.run("dp-gmm", sites, k=4, covariance=kind, **LOUD)
    X = np.concatenate([sites[site] for site in result.site_labels])
    arrays = result.arrays | {"centroids": result.centroids}
    assert arrays["covariances"].shape == ((4, 3, 3) if kind in ("full", "tied") else (4, 3))
    assert arrays["weights"].sum() == pytest.approx(1)
    np.testing.assert_array_equal(result.labels, mixtures.responsibilities(X, arrays).argmax(axis=1))
    np.testing.assert_array_equal(result.predict(X), result.labels)
    assert {"probability", "log_density"} <= set(result.placements(X).columns)
    far = np.concatenate([X[:200], np.full((1, 3), 1e3)])
    assert result.placements(far, outliers=0.01)["outlier"].to_numpy()[-1]
    assert not {"bic", "log_likelihood"} & set(result.metrics)
    sure = np.sort(np.abs(result.centroids).max(axis=1))
    np.testing.assert_allclose(sure, 10, atol=3)


@pytest.mark.parametrize("secure", [False, True])
def test_each_exchange_is_paid_once_and_all_together_cost_the_jobs_epsilon(secure, sites, monkeypatch):
    spent: dict[int, list[tuple[str, float]]] = {}
    spend = Ledger.spend

    def noted(ledger, job, what, rho, *limits):
        spent.setdefault(id(ledger), []).append((what, rho))
        return spend(ledger, job, what, rho, *limits)

    monkeypatch.setattr(Ledger, "spend", noted)
    flareclust.run("dp-gmm", sites, k=4, rounds=3, updates=2, start="spread", secure_sums=secure, **LOUD)
    asked = accounting.rho_of(8.0, 1e-5)
    assert len(spent) == len(sites)
    for lines in spent.values():
        words = [what.split(", with")[0] for what, _ in lines]
        assert words[0] == "moments"
        assert [" ".join(one.split()[:3]) for one in words[1:-1]] == ["update of round"] * 2 + [
            "iteration of round"
        ] * 3
        assert words[-1] == "assessment"
        shares = [rho / asked for _, rho in lines]
        assert shares == pytest.approx([0.2, *[0.15] * 5, 0.05])
        assert sum(rho for _, rho in lines) <= asked


def asked(**changed) -> dict[str, np.ndarray]:
    mixture = mixtures.Mixture(np.full(2, 0.5), np.array([[0.0, 0.0], [3.0, 0.0]]), np.ones((2, 2)))
    return mixture.arrays() | {"moments": np.array(4), "share": np.array(0.1)} | changed


def held(ledger: Ledger | None = None, **terms) -> SiteSession:
    return SiteSession(Policy.of(policy(bounds=(-5.0, 5.0)) | terms), "a", ledger or Ledger.in_memory())


def answered(arrays: dict, session: SiteSession, site: str = "a", **settings) -> dict[str, np.ndarray]:
    rows = np.random.default_rng(0).normal(size=(50, 2))
    executor = DPGMMExecutor(2, covariance="diag", **settings)
    return executor.answer(Task(EXPECTATION, 1, arrays, site), rows, never_abort, session).arrays


def test_every_site_draws_noise_of_its_own_each_time_and_not_from_the_seed(monkeypatch):
    drawn = []
    gaussian = mechanism.gaussian
    monkeypatch.setattr(
        mechanism, "gaussian", lambda values, *stated: drawn.append((values, *stated)) or gaussian(values, *stated)
    )
    replies = [answered(asked(), held(), site) for site in ("a", "b", "a")]
    for name in ("rows", "shifts", "m2"):
        values = [reply[name] for reply in replies]
        assert not any(np.array_equal(values[i], values[i - 1]) for i in range(3))
    for values, sensitivity, rho in drawn:
        np.testing.assert_array_equal(values, drawn[0][0])
        assert sensitivity == mixture_sums.mixture_sensitivity()
        assert rho == pytest.approx(0.1 * accounting.rho_of(1.0, 1e-5))
    many = np.array([answered(asked(), held())["rows"] for _ in range(400)])
    stated = mechanism.sigma(sensitivity, rho) / mixture_sums.COUNT
    assert many.std(axis=0) == pytest.approx(stated, rel=0.15)


@pytest.mark.parametrize(
    "changed",
    [
        {"centroids": np.full((2, 2), 1e141)},
        {"centroids": np.zeros((2, 3))},
        {"centroids": np.zeros((3, 2))},
        {"weights": np.array([1.0, np.nan])},
        {"weights": np.zeros(2)},
        {"factors": np.zeros((2, 2))},
        {"factors": np.full((2, 2), np.inf)},
        {"factors": np.ones((2, 2, 2))},
        {"moments": np.array(3)},
        {"moments": np.array(4.0)},
        {"share": np.array(0.0)},
        {"share": np.array(1.1)},
        {"share": np.array(np.nan)},
    ],
)
def test_what_a_lying_server_sends_is_refused_and_costs_nothing(changed):
    ledger = Ledger.in_memory()
    for arrays in (asked(**changed), {name: one for name, one in asked().items() if name not in changed}):
        with pytest.raises((BadMessage, Refusal)), np.errstate(divide="raise", over="raise", invalid="raise"):
            answered(arrays, held(ledger))
    assert ledger.spent().total == 0


def test_a_server_that_asks_again_and_again_gets_no_more_than_the_job_may_spend():
    ledger = Ledger.in_memory()
    for _ in range(4):
        answered(asked(share=np.array(0.25)), held(ledger))
    with pytest.raises(Refusal, match="on this job"):
        answered(asked(share=np.array(0.25)), held(ledger))
    assert ledger.spent().total <= accounting.rho_of(1.0, 1e-5)


def test_a_job_that_asks_for_more_than_the_site_grants_is_refused():
    ledger = Ledger.in_memory()
    with pytest.raises(Refusal, match=r"no more than epsilon=1 .* asks for epsilon=2 "):
        answered(asked(), held(ledger), epsilon=2.0)
    assert ledger.spent().total == 0
    with pytest.raises(JobFailed, match="no more than epsilon=1 "):
        flareclust.run("dp-gmm", {"a": np.zeros((90, 2))}, k=2, epsilon=2.0, policy=policy())


def test_components_whose_covariances_are_noise_are_named_and_what_helps():
    """In many columns noise hides variances long before it hides means."""
    server, rng = get("dp-gmm").build(2, 0, {"epsilon": 8.0})[1], np.random.default_rng(0)
    n = 6 * server.rows_needed(8, 2)
    X = rng.normal(size=(n, 8)) + 12.0 * rng.integers(2, size=(n, 1))
    sites = {"a": X[::2], "b": X[1::2]}
    [named] = flareclust.run("dp-gmm", sites, k=2, **LOUD).warnings
    assert named.startswith("noise alone makes up to")
    assert "times the variances of components 0 and 1" in named
    assert "or covariance=tied or diag" in named
    assert not flareclust.run("dp-gmm", sites, k=2, covariance="diag", **LOUD).warnings


def test_the_noise_that_is_expected_is_that_which_comes(monkeypatch):
    server = get("dp-gmm").build(2, 0, {"rounds": 3, "updates": 2})[1]
    stated = server._noise(0.1, 4)
    one = mechanism.sigma(mixture_sums.mixture_sensitivity(), 0.1 * accounting.rho_of(1.0, 1e-5)) / 2**20
    assert stated == pytest.approx(2 * one)
    assert server.secured()._noise(0.1, 4) == pytest.approx(one * math.sqrt(4 / 3))
    assert server.rows_needed(2, 16) == pytest.approx(2 * server.rows_needed(2, 4), abs=2)
    wide, narrow = (float(dp_mixtures.blur(np.array([100.0]), stated, kind, 8)[0]) for kind in ("full", "diag"))
    assert wide == pytest.approx(4 * narrow)


def test_covariances_of_too_many_columns_are_refused_before_anything_is_spent(monkeypatch):
    monkeypatch.setattr(Ledger, "spend", lambda *_: pytest.fail("something was spent"))
    with pytest.raises(JobFailed, match="take diag"):
        flareclust.run("dp-gmm", {"a": np.zeros((60, 1100)), "b": np.zeros((60, 1100))}, k=4, **LOUD)


def test_settings_are_checked():
    for params in ({"covariance": "round"}, {"rounds": 0}, {"updates": 0}, {"cells": 1}, {"epsilon": 0.0}):
        with pytest.raises(UserError, match=next(iter(params))):
            get("dp-gmm").build(2, 0, params)


def test_the_most_rounds_and_updates_begin_and_more_are_refused():
    build = get("dp-gmm").build
    assert build(3, 0, {"rounds": 5000, "updates": 5000})[1].begin().step
    for name in ("rounds", "updates"):
        with pytest.raises(UserError, match=f"{name} must be an integer from 1 to 5000, got 5001"):
            build(3, 0, {name: 5001})
