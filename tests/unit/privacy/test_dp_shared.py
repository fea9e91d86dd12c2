"""One noise for a masked sum: what shares add up to, what it costs, and when a site adds only a share."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

import flareclust
from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.dp import sums as dp_sums
from flareclust.executors.dp_lloyd import UPDATE, DPLloydExecutor
from flareclust.privacy.dp import accounting, mechanism
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.dp.mechanism import SharedNoise, _rho_of_sum, deviation_of_total
from flareclust.privacy.job_sums import SecureSums
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.masking import KeyTable, SiteMasks, key_of, total
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from tests.unit.algorithms.dp_cases import policy

ASKED = {"centroids": np.zeros((1, 2)), "radii": np.full(1, 5.0), "share": np.array(0.2)}


# What it costs


def renyi(p: np.ndarray, order: float) -> float:
    """Return the Renyi divergence of a distribution on whole numbers from itself, moved by 1."""
    here, there = np.log(p[:-1]), np.log(p[1:])
    return float(logsumexp(order * here + (1 - order) * there)) / (order - 1)


@pytest.mark.parametrize("scale", [0.5, 0.6, 0.8, 1.5, 4.0])
@pytest.mark.parametrize("honest", [1, 2, 3, 7])
def test_a_sum_of_discrete_gaussians_protects_as_stated(scale, honest):
    """Against the exact distribution, a convolution."""
    x = np.arange(-60, 61)
    one = np.exp(-(x**2) / (2 * scale**2))
    one /= one.sum()
    summed = one
    for _ in range(honest - 1):
        summed = np.convolve(summed, one)
    within = int(8 * scale * math.sqrt(honest)) + 1  # what is farther away counts nothing, and is cut off here
    middle = len(summed) // 2
    summed = summed[middle - within : middle + within + 1]
    for order in (1.5, 2.0, 4.0):
        assert renyi(summed, order) <= order * _rho_of_sum(scale, honest, 1.0, 1) * (1 + 1e-9)


def test_shares_are_as_small_as_the_statement_allows():
    for sites, colluding in ((3, 1), (10, 3), (10, 9), (100, 33)):
        shared = SharedNoise(sites, colluding)
        scale = shared.scale(2.0**20, 0.01, 5000)
        assert _rho_of_sum(scale, shared.honest, 2.0**20, 5000) <= 0.01
        assert scale == pytest.approx(mechanism.sigma(2.0**20, 0.01) / math.sqrt(sites - colluding))
    assert SharedNoise(10, 9).scale(2.0**20, 0.01, 5) == pytest.approx(mechanism.sigma(2.0**20, 0.01))
    coarse = SharedNoise(10, 3).scale(1.0, 50.0, 1000)  # a scale at which whole numbers are coarse
    assert coarse >= 0.5
    assert _rho_of_sum(coarse, 7, 1.0, 1000) <= 50


def test_the_noise_of_a_total_is_that_of_one_holder_and_of_those_who_may_collude():
    shared, rho = SharedNoise(10, 3), 0.01
    scale = shared.scale(2.0**20, rho, 3000)
    drawn = sum(mechanism.share(np.zeros(3000, np.int64), scale) for _ in range(10))
    expected = deviation_of_total(mechanism.sigma(2.0**20, rho), 10, 3)
    assert drawn.std() == pytest.approx(expected, rel=0.06)
    assert expected == pytest.approx(mechanism.sigma(2.0**20, rho) * math.sqrt(10 / 7))


# Who adds only a share


@pytest.mark.parametrize(
    ("sites", "job", "required", "named", "words"),
    [
        (10, 2, None, 10, "3 colluding sites of 10, and the job counts on 2"),
        (10, None, 5, 10, "5 colluding sites of 10, and the job counts on 3; submit with colluding=5"),
        (4, None, None, 12, "4 colluding sites of 12, and the job counts on 1"),  # the four may be those that collude
        (3, 3, None, 3, "the sum is of 3"),
        (10, None, None, None, "only where its policy names the sites"),
        (10, 9, 9, None, "only where its policy names the sites"),
    ],
)
def test_a_site_adds_no_smaller_share_than_its_policy_says(sites, job, required, named, words):
    with pytest.raises(Refusal, match=words):
        SharedNoise.of(sites, job, required, named)
    assert SharedNoise.of(10, 2, 2, 10).honest == 8
    assert SharedNoise.of(10, None, None, 10).honest == 7


def session(ledger: Ledger | None = None, named: tuple[str, ...] | None = None, **said) -> SiteSession:
    settings = policy(bounds=(-5.0, 5.0)) | {"secure_sites": named}
    settings["differential_privacy"] |= said
    return SiteSession(Policy.of(settings), "a", ledger or Ledger.in_memory())


def answers(executors: dict[str, DPLloydExecutor], rows: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return what sites of a job with secure sums answer, masked."""
    sessions = {site: session(named=tuple(rows), colluding=1) for site in rows}
    keys = {
        site: key_of(
            executor.answer(Task(StepName.KEYS, 0, {}, site), rows[site], never_abort, sessions[site]).arrays["key"]
        )
        for site, executor in executors.items()
    }
    asked = ASKED | KeyTable(dict(sorted(keys.items()))).sent()
    return [
        executor.answer(Task(UPDATE, 1, dict(asked), site), rows[site], never_abort, sessions[site]).arrays["masked"]
        for site, executor in executors.items()
    ]


def of_a_job(**settings) -> DPLloydExecutor:
    executor = DPLloydExecutor(1, **settings)
    executor.hold_to(SecureSums(3))
    return executor


def test_shares_do_not_leave_without_masks_and_noise_is_whole_where_the_job_does_not_promise_masks(rng, monkeypatch):
    rows, shares = rng.normal(size=(50, 2)), []
    monkeypatch.setattr(mechanism, "share", lambda values, scale: shares.append(scale) or values)
    with pytest.raises(Refusal, match="takes part in a job with secure sums"):
        of_a_job().answer(Task(UPDATE, 1, dict(ASKED), "a"), rows, never_abort, session())
    plain = {site: DPLloydExecutor(1) for site in ("a", "b", "c")}  # the server asks for keys all the same
    answers(plain, dict.fromkeys(plain, rows))
    assert not shares
    promised = {site: of_a_job() for site in ("a", "b", "c")}
    answers(promised, dict.fromkeys(promised, rows))
    assert len(shares) == 3


def test_sites_that_add_other_shares_than_the_others_make_no_total(rng, monkeypatch):
    """A server that tells some sites of fewer colluding ones would get a total with too little noise."""
    monkeypatch.setattr(mechanism, "share", lambda values, scale: values)
    rows = {site: rng.normal(size=(50, 2)) for site in ("a", "b", "c", "d")}
    one = answers({site: of_a_job(colluding=1) for site in rows}, rows)
    assert max(map(abs, total(one))) < 1000 << 128
    mixed = answers({site: of_a_job(colluding=1 + (site == "a")) for site in rows}, rows)
    assert max(map(abs, total(mixed))) > 1000 << 128


def asked_with_invented_sites(held: SiteSession, invented: int) -> None:
    """Ask the site a for its share of a sum whose other sites are the server's, all but b and c."""
    executor, rows = of_a_job(), np.zeros((20, 2))
    key = executor.answer(Task(StepName.KEYS, 0, {}, "a"), rows, never_abort, held).arrays["key"]
    others = ["b", "c", *(f"invented-{i:03d}" for i in range(invented))]
    keys = {"a": key_of(key)} | {site: SiteMasks(site).public for site in others}
    asked = ASKED | KeyTable(dict(sorted(keys.items()))).sent()
    executor.answer(Task(UPDATE, 1, asked, "a"), rows, never_abort, held)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (None, "a server could list sites of its own"),
        (("a", "b", "c"), r"does not add up its numbers with those of 'invented-000'"),
    ],
)
def test_a_server_that_lists_sites_of_its_own_gets_no_smaller_share(named, words, monkeypatch):
    """With 97 invented sites a share would have 1/67 of the noise's variance, and a third of the sites is no bound on them."""
    shares = []
    monkeypatch.setattr(mechanism, "share", lambda values, scale: shares.append(scale) or values)
    ledger = Ledger.in_memory()
    with pytest.raises(Refusal, match=words):
        asked_with_invented_sites(session(ledger, named), 97)
    assert not shares
    assert not ledger.spent().total
    asked_with_invented_sites(session(ledger, ("a", "b", "c")), 0)
    rho = 0.2 * accounting.rho_of(1.0, 1e-5)
    assert shares == [pytest.approx(mechanism.sigma(dp_sums.cluster_sensitivity(), rho) / math.sqrt(2))]
    assert ledger.spent().total == pytest.approx(rho)


def test_the_sites_of_a_simulation_name_each_other():
    own = Policy.of(policy())
    assert own.among(["a", "b", "c"]).secure_sites == ("a", "b", "c")
    assert own.among(["a", "b"]) is own  # too few for a masked sum
    assert Policy().among(["a", "b", "c"]).secure_sites is None
    named = Policy.of(policy() | {"secure_sites": ["a", "b", "c"]})
    assert named.among(["a", "b", "c", "d"]) is named


def test_a_federation_with_secure_sums_spends_what_it_asks_for_and_has_less_noise(sites, monkeypatch):
    ledgers = []
    monkeypatch.setattr(Ledger, "in_memory", classmethod(lambda cls: ledgers.append(cls(None)) or ledgers[-1]))
    own = policy(epsilon=1.0, budget=1.0)
    asked = accounting.rho_of(1.0, 1e-5)
    for d, step in ((3, "grid"), (3, "axes"), (3, "spread")):
        ledgers.clear()
        rows = {f"site-{i}": data[:, :d] for i, data in enumerate(np.array_split(np.concatenate([*sites.values()]), 5))}
        settings = {"start": step, "cells": 64 if step == "grid" else 20}
        result = flareclust.run("dp-lloyd", rows, k=4, policy=own, secure_sums=True, **settings)
        assert not any("secure_sums" in warning for warning in result.warnings)
        assert len(ledgers) == 5
        for ledger in ledgers:
            assert 0.99 * asked < ledger.spent().total <= asked


def test_a_policy_that_counts_on_more_colluding_sites_ends_a_job_that_does_not(sites):
    careful = policy(epsilon=1.0)
    careful["differential_privacy"]["colluding"] = 4
    rows = {f"site-{i}": data for i, data in enumerate(np.array_split(np.concatenate([*sites.values()]), 6))}
    with pytest.raises(JobFailed, match=r"counts on 2.*submit with colluding=4"):
        flareclust.run("dp-lloyd", rows, k=4, policy=careful, secure_sums=True)
    assert flareclust.run("dp-lloyd", rows, k=4, policy=careful, secure_sums=True, colluding=4).centroids.shape[1] == 3


# Signal to noise


def test_a_result_says_where_noise_was_as_large_as_clusters_and_what_would_help(sites):
    faint = flareclust.run("dp-lloyd", sites, k=4, epsilon=0.02, policy=policy(epsilon=0.02))
    [warning] = [text for text in faint.warnings if "noise moves a centroid" in text]
    assert "epsilon=" in warning
    assert "times as many rows" in warning
    clear = flareclust.run("dp-lloyd", sites, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0))
    assert not clear.warnings


def test_a_run_with_too_few_rows_is_warned_of_before_anything_is_asked(sites, caplog):
    settings = {"k": 4, "epsilon": 0.05, "policy": policy(epsilon=0.05)}
    flareclust.run("dp-lloyd", sites, **settings)
    assert "rows in all" in caplog.text
    caplog.clear()
    flareclust.run("dp-lloyd", sites, k=4, epsilon=8.0, policy=policy(epsilon=8.0, budget=8.0))
    assert "rows in all" not in caplog.text


def test_fewer_rows_are_needed_where_sites_share_one_noise():
    aggregator = get("dp-lloyd").build(4, 0, {})[1]
    own, shared = aggregator.rows_needed(2, 10), aggregator.secured().rows_needed(2, 10)
    assert own / shared == pytest.approx(math.sqrt(7), rel=1e-2)
