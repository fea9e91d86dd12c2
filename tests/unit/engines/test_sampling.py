"""Rounds with a cohort of the sites, and with sites that drop out."""

import numpy as np
import pytest

import flareclust
from flareclust import JobFailed, UserError
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.exchanges import Sampling
from flareclust.protocol import registry
from flareclust.protocol.outcome import numbers_of_sites

NAMES = [f"s{i:03d}" for i in range(200)]


def test_a_cohort_is_a_draw_without_replacement_that_is_another_in_each_round():
    sampling = Sampling(cohort=50, seed=1)
    drawn = [sampling.drawn(NAMES, round_) for round_ in range(20)]
    assert all(len(set(one)) == 50 and one == sorted(one) for one in drawn)
    assert len(set(map(tuple, drawn))) == 20
    assert drawn[3] == Sampling(cohort=50, seed=1).drawn(NAMES, 3)
    times = [sum(name in one for one in drawn) for name in NAMES]
    assert sum(times) == 20 * 50
    assert max(times) < 15


def test_a_cohort_of_more_sites_than_there_are_is_all_of_them():
    assert Sampling(cohort=500).drawn(NAMES, 0) == NAMES
    assert Sampling().drawn(NAMES, 0) == NAMES


def test_sites_drop_out_by_chance_and_not_always_the_same():
    sampling = Sampling(dropout=0.3)
    staying = [sampling.staying(NAMES, round_) for round_ in range(50)]
    assert 0.66 < np.mean([len(one) for one in staying]) / len(NAMES) < 0.74
    assert all(any(name in one for one in staying) for name in NAMES)
    assert Sampling().staying(NAMES, 0) == NAMES


def test_a_site_that_refuses_is_not_drawn_again_and_the_quorum_is_of_the_cohort():
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(size=(20, 2)) for name in NAMES[:40]}
    sites["s000"] = sites["s000"][:1]
    params = {"rounds": 8, "tol": 0.0}
    outcome = run_inprocess(registry.get("fkm"), params, sites, JobOptions(k=2), sampling=Sampling(cohort=30))
    asked = [record for record in outcome.rounds if record["step"] == "cluster"]
    assert set(outcome.refused) == {"s000"}
    assert {len(record["sites"]) for record in asked} == {29, 30}
    with pytest.raises(
        JobFailed, match=r"15 of 30 sites .* at least 30 are needed .*\. 15 of them dropped out by chance"
    ):
        run_inprocess(
            registry.get("fkm"), params, sites, JobOptions(k=2, min_sites=40), sampling=Sampling(cohort=30, dropout=0.5)
        )


def test_a_round_that_everybody_drops_out_of_fails_in_plain_words():
    sites = {"a": np.random.default_rng(0).normal(size=(9, 2)), "b": np.random.default_rng(1).normal(size=(9, 2))}
    with pytest.raises(
        JobFailed,
        match=r"0 of 2 sites took part where at least 2 are needed \(min_sites\)\. 2 of them dropped out by chance; lower dropout",
    ):
        run_inprocess(registry.get("fkm"), {}, sites, JobOptions(k=2), sampling=Sampling(dropout=0.9999))


def test_the_setting_reaches_both_engines():
    for engine in ("inprocess", "devices"):
        found = flareclust.run("lloyd", "iris", n_sites=12, cohort=5, seed=1, engine=engine, rounds=2, profile=False)
        assert [numbers_of_sites(record)[0] for record in found.outcome.rounds] == [5, 5, 5, 12]


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("lloyd", {"cohort": 3, "secure_sums": True}, "lloyd with secure_sums needs the same sites in all rounds"),
        ("masked", {"dropout": 0.1}, "masked needs the same sites in all rounds"),
        ("lloyd", {"cohort": 3, "engine": "simulator"}, "for the engines inprocess and devices, not simulator"),
        ("lloyd", {"cohort": 0}, "cohort"),
        ("lloyd", {"dropout": 1.0}, "dropout"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(algorithm, settings, message):
    with pytest.raises(UserError, match=message):
        flareclust.run(algorithm, "iris", **settings)
