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
PRIVATE = {"differential_privacy": {"bounds": [0, 10], "epsilon": 1.0, "delta": 1e-5, "budget": 3.0}}


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


def test_without_a_policy_nothing_passes(plain):
    assert "pass" not in statuses(plain).values()
    assert statuses(plain)["clusters"] == "review"
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
    assert "This page as a whole: <b>fail</b>" in section
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
    assert "nobody knows whether a cluster is of one site only" in record["results"]["clusters"]["summary"]
    assert "site_rows" not in record["results"]
    assert plain.disclosure()["rule"]["secure_sums"] is None


def test_differential_privacy_is_stated_and_labels_here_are_not_covered():
    pytest.importorskip("opendp", reason="needs the extra dp")
    record = flareclust.run("dp-lloyd", data="iris", policy=PRIVATE, **OWN).disclosure()
    terms = {"epsilon": 1.0, "delta": 1e-5, "unit": "row"}
    assert record["rule"]["differential_privacy"] == terms
    assert record["results"]["centroids"]["status"] == "pass"
    assert "epsilon 1.0" in record["results"]["centroids"]["summary"]
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
