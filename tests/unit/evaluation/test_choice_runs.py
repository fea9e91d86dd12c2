"""Runs that choose k, also for another algorithm, and k = 15 on the S-sets."""

import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.evaluation import selection as choice
from flareclust.evaluation.criteria import RULES
from flareclust.experiment.config import make_experiment
from tests.unit.evaluation.choice_cases import sites


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("algorithm", ["pooled", "kfed"])
def test_clear_clusters_are_counted_by_every_rule(algorithm, rule):
    result = flareclust.run(algorithm, sites(), k="2..7", criterion=rule)
    assert result.k == result.centroids_found == 4
    assert not result.warnings
    told = result.to_json()["choice"]
    assert told["k"] == [2, 3, 4, 5, 6, 7]
    assert told["rules"] == dict.fromkeys(RULES, 4)


def test_the_scores_of_a_run_are_those_of_its_rows():
    """What the sites' sums come to for the k chosen equals the assessment of the result, and the rows themselves."""
    data = sites()
    result = flareclust.run("pooled", data, k="2..5")
    told = result.to_json()["choice"]
    rows = np.concatenate([data[site] for site in sorted(data)])
    inertia = (np.linalg.norm(rows[:, None] - result.centroids[None], axis=2).min(axis=1) ** 2).sum()
    assert told["inertia"][2] == pytest.approx(inertia)
    for name in ("inertia", "simplified_silhouette", "davies_bouldin"):
        assert told[name][2] == pytest.approx(result.metrics[name])
    assert told["inertia"] == sorted(told["inertia"], reverse=True)
    json.dumps(told, allow_nan=False)


def test_another_algorithm_runs_as_if_it_had_been_given_the_k():
    result = flareclust.run("kfed", sites(), k="2..7", seed=3)
    alone = flareclust.run("kfed", sites(), k=4, seed=3)
    np.testing.assert_array_equal(result.centroids, alone.centroids)
    np.testing.assert_array_equal(result.labels, alone.labels)
    chooser = flareclust.run("pooled", sites(), k="2..7", seed=3)
    assert result.to_json()["choice"] == chooser.to_json()["choice"]
    assert result.rounds == 1 + 2  # the chooser's upload and scores come first
    assert result.bytes["up"] > alone.bytes["up"]
    assert "choice" not in alone.to_json()


def test_rounds_are_numbered_through_and_the_choosers_assessment_is_left_out():
    records = []
    experiment = make_experiment(algorithm="kfed", k="2..5", engine="inprocess", data="own", n_sites=4)
    from flareclust.experiment.prepare import prepare_sites
    from flareclust.experiment.submit import submit

    outcome = submit(experiment, prepare_sites(experiment, sites()), records.append)
    assert [(record["round"], record["step"]) for record in outcome.rounds] == [
        (0, "cluster"),
        (1, "score"),
        (2, "cluster"),
        (3, "assess"),
    ]
    assert [record["step"] for record in records].count("assess") == 1
    assert choice.chosen_k(outcome.arrays) == 4


def test_min_count_holds_for_the_choosing_job_as_well():
    with pytest.raises(JobFailed, match="fewer rows than min_count=500"):
        flareclust.run("kfed", sites(), k="2..5", min_count=500)


def test_a_range_that_no_site_has_rows_for_fails_with_advice():
    small = {site: rows[::20] for site, rows in sites().items()}
    with pytest.raises(JobFailed, match=r"too few to try k=90; end the range of k at \d+ or less"):
        flareclust.run("pooled", small, k="2..90")


def test_a_range_whose_scores_would_tell_the_rows_fails_with_advice():
    small = {site: rows[::10] for site, rows in sites().items()}
    with pytest.raises(
        JobFailed, match=r"too few rows to compare k=2\.\.20 .* 716 values .* give a smaller range of k"
    ):
        flareclust.run("pooled", small, k="2..20")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["s1", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("s2", "s3", "s4"))]
)
def test_fifteen_clusters_are_found_in_the_s_sets(name, shared_data):
    """Ten seeds in the documents (39 of 40); three here."""
    picked = [flareclust.run("pooled", data=name, k="5..25", seed=seed).k for seed in range(3)]
    assert picked == [15, 15, 15]


def test_another_algorithm_gets_fifteen_too(shared_data):
    assert flareclust.run("feca", data="s1", k="5..25", criterion="davies-bouldin", n_init=3).centroids_found == 15
