"""The disclosure record of whole results: which outputs it has, by which rule, and where it is shown."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import flareclust
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result

OWN = {"k": 3, "n_sites": 3, "engine": "inprocess"}
#: At epsilon 1 noise can leave a cluster of so few rows to one site.
PRIVATE = {"differential_privacy": {"bounds": [0, 10], "epsilon": 8.0, "delta": 1e-5, "budget": 24.0}}


@pytest.fixture(scope="module")
def under_policy(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "policy"
    return flareclust.run("lloyd", data="iris", policy={"min_count": 10}, out=out, **OWN), out


@pytest.fixture(scope="module")
def plain():
    return flareclust.run("lloyd", data="iris", **OWN)


def statuses(result):
    return {uid: one["status"] for uid, one in result.disclosure()["results"].items()}


def test_under_a_policy_its_floor_is_the_rule(under_policy):
    result, _ = under_policy
    record = result.disclosure()
    assert (record["rule"]["threshold"], record["rule"]["source"]) == (10, "the sites' policy")
    passed = {uid for uid, status in statuses(result).items() if status == "pass"}
    assert {"clusters", "centroids", "means", "bins", "measures"} <= passed
    assert record["files"]["result.json"] == "pass"
    assert statuses(result)["labels"] == statuses(result)["rows"] == record["status"] == "fail"


def test_under_a_policy_the_report_has_no_map_of_the_rows(under_policy, plain):
    maps = "Colour and number: cluster"
    assert (maps in report_page(plain), plain.disclosure()["files"]["report.html"]) == (True, "fail")
    result, _ = under_policy
    assert maps not in report_page(result)
    assert [one["name"] for one in result.disclosure()["results"]["rows"]["files"]] == ["picture.png"]
    assert result.disclosure()["files"]["report.html"] == "review"


def test_without_a_policy_nothing_passes(plain):
    assert "pass" not in statuses(plain).values()
    assert statuses(plain)["clusters"] == "review"
    rule = plain.disclosure()["rule"]
    assert rule["source"] == "the default, since the sites have no policy"
    assert "not known here" not in json.dumps(plain.disclosure()["results"]["clusters"])
    assert "(the default, since the sites have no policy)" in report_page(plain)
    remote = replace(plain, engine="production").disclosure()
    assert remote["rule"]["source"] == "the default, since the thresholds of the sites' policies are not known here"
    bins = plain.arrays["profile_bins"]
    assert plain.disclosure()["results"]["bins"]["properties"]["smallest_cell"] == bins[bins > 0].min()


def test_it_is_beside_the_result_and_names_every_file_there(under_policy):
    result, out = under_policy
    written = json.loads((out / "disclosure.json").read_text())
    assert written == result.disclosure()
    assert set(written["files"]) == {file.name for file in out.iterdir()} - {"disclosure.json"}


def test_a_loaded_result_has_the_same_entries_without_the_rows(under_policy):
    result, out = under_policy
    whole, loaded = result.disclosure()["results"], flareclust.load_result(out).disclosure()["results"]
    assert loaded == {uid: one for uid, one in whole.items() if uid != "rows"}


def test_the_report_has_a_line_for_each_entry(under_policy):
    result, _ = under_policy
    page = report_page(result)
    (section,) = re.findall(r"<h2>Disclosure</h2>.*?</section>", page, flags=re.DOTALL)
    assert "This page as a whole: <b>review</b>" in section
    assert section.count("<tr>") == 1 + len(statuses(result))
    assert "cells of 10 rows (the sites&#39; policy)" in section


def test_the_terminal_says_how_many_do_not_pass(under_policy, capsys):
    result, _ = under_policy
    print_result(result)
    found = list(statuses(result).values())
    words = f"of {len(found)} outputs {found.count('fail')} fail and {found.count('review')} need a review"
    assert words in capsys.readouterr().out


def test_a_cluster_of_one_site_is_named():
    rng = np.random.default_rng(0)
    apart = {site: rng.normal(10 * c, 1, (40, 2)) for c, site in enumerate("abc")}
    found = flareclust.run("lloyd", data=apart, k=3, engine="inprocess", policy={"min_count": 10}).disclosure()
    assert found["results"]["centroids"]["status"] == "review"
    assert "all rows of clusters 0, 1, 2 are of one site" in found["results"]["centroids"]["summary"]
    assert "class disclosure: 6 cells of 0 rows, and 3 cells with all" in found["results"]["site_rows"]["summary"]


def test_few_rows_at_a_site_saturate():
    rng = np.random.default_rng(0)
    few = {"a": rng.normal(0, 1, (300, 6)), "b": rng.normal(0, 1, (30, 6))}
    found = flareclust.run("lloyd", data=few, k=2, engine="inprocess").disclosure()["results"]["centroids"]
    assert (found["properties"]["numbers"], found["properties"]["rows"]) == (12, 30)
    assert "saturated: 12 numbers for 30 rows of the smallest site" in found["summary"]


def test_secure_sums_are_stated(plain):
    record = flareclust.run("lloyd", data="iris", secure_sums=True, **OWN).disclosure()
    assert record["rule"]["secure_sums"] == {"sites": 3, "least_sites": None}
    assert "the server does not know whether a cluster is of one site only" in record["results"]["clusters"]["summary"]
    assert "site_rows" not in record["results"]
    assert plain.disclosure()["rule"]["secure_sums"] is None


def test_differential_privacy_is_stated_and_labels_here_are_not_covered():
    pytest.importorskip("opendp", reason="needs the extra dp")
    record = flareclust.run(
        "dp-lloyd", data="iris", policy={**PRIVATE, "min_count": 25}, epsilon=8.0, **OWN
    ).disclosure()
    terms = {"epsilon": 8.0, "delta": 1e-5, "unit": "row"}
    assert record["rule"]["differential_privacy"] == terms
    assert (record["rule"]["threshold"], record["rule"]["source"]) == (25, "the sites' policy")
    assert record["results"]["centroids"]["status"] == "pass"
    assert "epsilon 8.0" in record["results"]["centroids"]["summary"]
    assert record["results"]["cluster_rows"]["status"] != "pass"
    assert record["results"]["site_rows"]["status"] != "pass"


def test_sizes_that_nobody_knows_are_for_review(plain):
    of_sites = replace(plain, labels=plain.labels[:0], site_labels={}, sites={}, arrays={"centroids": plain.centroids})
    found = of_sites.disclosure()["results"]
    assert found["clusters"]["status"] == found["centroids"]["status"] == "review"
    assert "labels" not in found
    assert "rows" not in found


def test_categories_are_cells(tmp_path):
    rng = np.random.default_rng(1)
    rows = "\n".join(
        f"{a:.3f},{'f' if s else 'm'}" for a, s in zip(rng.normal(0, 1, 90), rng.random(90) < 0.5, strict=True)
    )
    (tmp_path / "t.csv").write_text(f"a,sex\n{rows}\n")
    (tmp_path / "schema.yaml").write_text("columns:\n  a: {type: number}\n  sex: {type: category, values: [f, m]}\n")
    result = flareclust.run(
        "lloyd", data=tmp_path / "t.csv", schema=tmp_path / "schema.yaml", k=2, n_sites=2, engine="inprocess"
    )
    shares = result.disclosure()["results"]["shares"]
    counts = [round(n * m) for n, m in zip(result.profiles()["rows"], result.profiles()["mean"], strict=True)]
    has = [c for c, name in zip(counts, result.profiles()["column"], strict=True) if name.startswith("sex=")]
    assert shares["properties"]["smallest_cell"] == min(c for c in has if c)


def of_two_groups(alone=0.01):
    """Two groups of rows, in one of which the second column is nearly 0 but for one row."""
    rng = np.random.default_rng(3)
    boxes = ((10, 60), (18, 68)), ((60, 0), (68, 0.01))
    sites = {name: np.concatenate([rng.uniform(*box, (20, 2)) for box in boxes]) for name in ("a", "b")}
    sites["a"][-1, 1] = alone
    return flareclust.run("lloyd", data=sites, k=2, engine="inprocess", profile=True)


def test_a_row_that_is_most_of_a_mean_fails_by_both_rules():
    record = of_two_groups().disclosure()
    assert record["rule"]["dominance"] == {"p": 10, "n": 2, "k": 90}
    for uid in ("means", "site_means"):
        one = record["results"][uid]
        summary = one["files"][0]["sdc"]["summary"]
        assert (summary["p-ratio"], summary["nk-rule"], summary["negative"]) == (0, 0, 0)
        assert "no dominance (10 % rule, (2, 90) rule)" in one["comments"]
    result = of_two_groups(alone=5.0)
    one = result.disclosure()["results"]["means"]
    summary = one["files"][0]["sdc"]["summary"]
    assert one["status"] == "fail"
    assert (summary["p-ratio"], summary["nk-rule"]) == (1, 1)
    small = int(result.centroids[:, 1].argmin())
    assert one["outcome"] == {"column 2": {f"cluster {small}": "p-ratio; nk-rule"}}
    assert one["files"][0]["sdc"]["cells"]["nk-rule"] == [[small, 1]]
    assert any(text.startswith("dominance: one or two rows are most of 1 cell ") for text in one["comments"])
    # The same numbers without the rows, as provisioned sites send them: nobody here knows.
    elsewhere = replace(result, sites={}, labels=result.labels[:0], site_labels={}).disclosure()["results"]["means"]
    assert elsewhere["status"] == "review"
    assert "dominance in 1 cell needs the rows, which are not here" in elsewhere["summary"]


def test_dominance_under_a_policy_is_by_moments_and_of_sites_unknown(under_policy):
    results = under_policy[0].disclosure()["results"]
    assert results["means"]["status"] == "pass"
    assert "no dominance (10 % rule, (2, 90) rule), by number, mean and deviation" in results["means"]["summary"]
    sites = results["site_means"]
    assert sites["files"][0]["sdc"]["summary"]["p-ratio"] is None
    assert "dominance (10 % rule, (2, 90) rule) needs the rows" in sites["summary"]
    assert "the sites' policy applies the p % rule in each of its groups" in sites["summary"]


def test_negative_values_are_for_review(plain):
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(0, 1, (50, 2)), "b": rng.normal(0, 1, (50, 2))}
    found = flareclust.run("lloyd", data=rows, k=2, engine="inprocess", profile=True).disclosure()["results"]["means"]
    summary = found["files"][0]["sdc"]["summary"]
    assert summary["negative"] > 0
    assert f"dominance was not checked of {summary['negative']} cells with negative values" in found["summary"]
    categories = plain.disclosure()["results"]["clusters"]["files"][0]["sdc"]["summary"]
    assert categories["negative"] is categories["p-ratio"] is None, "rows are counted there, and nothing is added up"


def test_an_outcome_that_is_a_number_is_a_table_of_magnitudes(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for site in ("north", "south"):
        lines = [f"{m + rng.normal():.3f},{rng.uniform(20, 40):.2f}" for m in (0, 30) for _ in range(40)]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["a,score", *lines]) + "\n")
    schema = "columns:\n  a: {type: number}\n  score: {type: number}\noutcome: {value: score}\n"
    (tmp_path / "schema.yaml").write_text(schema)
    asked = {"k": 2, "schema": tmp_path / "schema.yaml", "partition": "none", "engine": "inprocess"}
    found = flareclust.run("lloyd", tmp_path / "data", **asked).disclosure()["results"]["outcomes"]
    assert found["files"][0]["sdc"]["summary"]["nk-rule"] == 0
    assert (
        "no dominance (10 % rule, (2, 90) rule), by number, mean and deviation, if no value is negative"
        in found["comments"]
    )


def test_a_sweep_has_a_record_of_its_files(tmp_path):
    study = {"name": "small", "data": "iris", "k": 3, "n_sites": 3, "algorithms": ["lloyd", "feca"], "seeds": 1}
    out = tmp_path / "sweep"
    result = flareclust.sweep(study, out=out)
    record = json.loads((out / "disclosure.json").read_text())
    assert set(record["files"]) == {file.name for file in out.iterdir()} - {"disclosure.json"}
    assert out / "disclosure.json" in result.files
    assert record["rule"]["source"] == "the default, since the sites have no policy"
    clusters = record["results"]["clusters"]
    sizes = [n for one in result.trials for n in one.measured.clusters.rows]
    assert clusters["properties"]["smallest_cell"] == min(sizes)
    assert "several results of the same rows" in clusters["summary"]
    assert "dominance (p % rule, (n, k) rule) needs the rows" in clusters["summary"]
    assert record["results"]["cells"]["properties"]["smallest_cell"] == 150
    assert "pass" not in {one["status"] for one in record["results"].values()}


def test_a_sweep_without_a_finished_trial_has_a_record(tmp_path):
    study = {"name": "none", "data": "iris", "k": 60, "n_sites": 3, "algorithms": ["feca"], "seeds": 1}
    assert flareclust.sweep(study, out=tmp_path / "o").failed == 1
    record = json.loads((tmp_path / "o" / "disclosure.json").read_text())
    assert list(record["results"]) == ["cells"]
    assert record["results"]["cells"]["properties"]["cells"] is None
