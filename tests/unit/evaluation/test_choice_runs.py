"""Runs that choose k, also for another algorithm, and k = 15 on the S-sets."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import calinski_harabasz_score

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import criteria
from flareclust.evaluation import selection as choice
from flareclust.experiment.config import make_experiment
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result
from flareclust.platform import provisioned
from flareclust.protocol.registry import get
from tests.unit.evaluation.choice_cases import sites


def known_by(rule):
    """The rules whose k is known where the sites are asked for what `rule` needs."""
    few = {
        "calinski-harabasz": ["calinski-harabasz", "elbow"],
        "silhouette": ["calinski-harabasz", "silhouette", "elbow"],
        "elbow": ["calinski-harabasz", "elbow"],
    }
    return few.get(rule, list(criteria.RULES))


@pytest.mark.parametrize("rule", criteria.RULES)
@pytest.mark.parametrize("algorithm", ["pooled", "kfed"])
def test_clear_clusters_are_counted_by_every_rule(algorithm, rule):
    result = flareclust.run(algorithm, sites(), k="2..7", criterion=rule)
    assert result.k == result.centroids_found == 4
    assert not result.warnings
    reported = result.to_json()["choice"]
    assert reported["k"] == [2, 3, 4, 5, 6, 7]
    assert reported["rules"] == dict.fromkeys(known_by(rule), 4)


def test_the_scores_of_a_run_are_those_of_its_rows():
    """What the sites' sums come to for the k chosen equals the assessment of the result, and the rows themselves."""
    data = sites()
    result = flareclust.run("pooled", data, k="2..5", criterion="davies-bouldin")
    reported = result.to_json()["choice"]
    rows = np.concatenate([data[site] for site in sorted(data)])
    inertia = (np.linalg.norm(rows[:, None] - result.centroids[None], axis=2).min(axis=1) ** 2).sum()
    assert reported["inertia"][2] == pytest.approx(inertia)
    for name in ("inertia", "simplified_silhouette", "davies_bouldin"):
        assert reported[name][2] == pytest.approx(result.metrics[name])
    # The mean of the uploaded centroids is not exactly that of the rows: some local clusters stay at their site.
    ratio = calinski_harabasz_score(rows, np.linalg.norm(rows[:, None] - result.centroids, axis=2).argmin(axis=1))
    assert reported["calinski_harabasz"][2] == pytest.approx(ratio, rel=1e-2)
    assert reported["inertia"] == sorted(reported["inertia"], reverse=True)
    json.dumps(reported, allow_nan=False)


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
    from flareclust.experiment.prepare import _NamedSites, prepare
    from flareclust.experiment.submit import submit

    outcome = submit(experiment, prepare(experiment, _NamedSites(sites())), records.append)
    assert [(record["round"], record["step"]) for record in outcome.rounds] == [
        (0, "cluster"),
        (1, "score_inertia"),
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
        run_inprocess(get("pooled"), {"k_min": 2}, small, JobOptions(k=90))


def test_a_range_whose_scores_would_tell_the_rows_is_refused_before_the_work():
    """16 rows of 3 columns at each site: 48 values; 1 + 20 for the sums up to 20, 2 * 20 * (3 + 3) for the other messages."""
    small, began = {site: rows[::10] for site, rows in sites().items()}, []
    with pytest.raises(
        UserError, match=r"compare k=2\.\.20 by calinski-harabasz .* 48 values .* 261 are needed; end the range at 3"
    ):
        flareclust.run("pooled", small, k="2..20", on_round=began.append)
    with pytest.raises(UserError, match=r"by davies-bouldin .* give one k"):
        flareclust.run("kfed", small, k="2..20", criterion="davies-bouldin", on_round=began.append)
    with pytest.raises(
        UserError, match="k=999999999999 is more than the 64 rows of all sites together; give a smaller k"
    ):
        flareclust.run("pooled", small, k="2..999999999999", on_round=began.append)
    assert not began
    assert flareclust.run("pooled", small, k="2..3").k == 3


def test_sites_with_a_policy_score_whatever_they_have():
    small = {site: rows[::4] for site, rows in sites().items()}
    with pytest.raises(UserError, match="no site has enough rows"):
        flareclust.run("pooled", small, k="2..16", policy=None)
    assert flareclust.run("pooled", small, k="2..16", policy={}).k == 4


def test_a_job_in_which_every_site_sits_out_fails_with_advice():
    """The server of a job does not know its sites' rows before they answer."""
    small = {site: rows[::10] for site, rows in sites().items()}
    with pytest.raises(
        JobFailed, match=r"too few rows to compare k=2\.\.20 .* 261 values .* give a smaller range of k"
    ):
        run_inprocess(get("pooled"), {"k_min": 2}, small, JobOptions(k=20))


def test_a_choice_by_few_of_the_sites_is_a_warning():
    rows = sites()
    small = {site: X[:20] if site != "site-1" else X for site, X in rows.items()}
    result = flareclust.run("pooled", small, k="2..16")
    assert [text.partition(";")[0] for text in result.warnings if text.startswith("k was")] == [
        f"k was chosen by {1 / len(rows):.0%} of the sites"
    ]
    assert not any(text.startswith("k was") for text in flareclust.run("pooled", rows, k="2..6").warnings)
    by_other = flareclust.run("kfed", small, k="2..16")
    assert any("that chose k: k was chosen by" in text for text in by_other.warnings)


def test_a_rule_asks_for_no_more_than_it_needs():
    """160 rows of 3 columns, 480 values: enough for the sums of all rows up to k = 30, too few for those of every centroid."""
    for rule, answered in (("calinski-harabasz", True), ("silhouette", True), ("davies-bouldin", False)):
        if answered:
            assert flareclust.run("pooled", sites(), k="2..30", criterion=rule).k == 4
        else:
            with pytest.raises(UserError, match="no site has enough rows"):
                flareclust.run("pooled", sites(), k="2..30", criterion=rule)


def test_results_of_older_versions_are_read():
    arrays = dict(flareclust.run("pooled", sites(), k="2..5", criterion="separation").arrays)
    del arrays["choice_calinski_harabasz"]
    reported = choice.summary(arrays, {})
    assert reported["rules"] == dict.fromkeys(("silhouette", "davies-bouldin", "elbow", "separation"), 4)
    assert reported["calinski_harabasz"] == [None] * 4


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


def test_what_secure_sums_do_not_mask_is_said_once_and_by_job():
    told = "secure_sums masked the sums over sites; replies that are no sums reached the server as they are, site by site: those to "
    first = "cluster, score_inertia in the job of pooled that chose k"
    for algorithm, steps in (("lloyd", first), ("portfolio", f"{first}, and to cluster in the job of the run")):
        result = flareclust.run(algorithm, sites(), k="2..5", secure_sums=True)
        assert [text for text in result.warnings if "secure_sums" in text] == [told + steps]
    page = report_page(result)
    assert "With secure sums the server does not know the clusters of a single site. The maps below show them" in page
    hidden = report_page(replace(result, sites={}))
    assert "The maps below" not in hidden


def test_warnings_of_the_job_that_chooses_say_so_and_are_not_repeated():
    of_both, of_first, of_run = "south refuses", "cluster 3 may be a batch effect", "few rows"
    outcome = run_inprocess(get("pooled"), {}, sites(), JobOptions(k=4))
    first, then = replace(outcome, warnings=[of_both, of_first]), replace(outcome, warnings=[of_both, of_run])
    assert choice.joined(first, then).warnings == [f"in the job of pooled that chose k: {of_first}", of_both, of_run]


def test_a_run_of_two_jobs_at_real_sites_names_both(monkeypatch, tmp_path, capsys):
    """Each job runs in this process and has the id of one at a server."""

    def run_production(algorithm, params, options, *_rest, **_more):
        return replace(run_inprocess(algorithm, params, sites(), options), job=f"job-of-{algorithm.name}", labels={})

    monkeypatch.setattr(provisioned, "run_production", run_production)
    result = flareclust.run("kfed", k="2..6", engine="production", kit=tmp_path, out=tmp_path / "out")
    assert (result.job, result.k) == ("job-of-kfed", 4)
    saved = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (saved["job"], saved["choice"]["job"]) == ("job-of-kfed", "job-of-pooled")
    said = "k=4 was chosen from 2..6 in the NVFlare job job-of-pooled of pooled"
    assert said in report_page(flareclust.load_result(tmp_path / "out"))
    print_result(result)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{said}; by rule: calinski-harabasz 4" in printed
    assert "NVFlare job job-of-kfed" in printed
    alone = flareclust.run("pooled", k="2..6", engine="production", kit=tmp_path)
    assert (alone.job, "job" in alone.to_json()["choice"]) == ("job-of-pooled", False)
