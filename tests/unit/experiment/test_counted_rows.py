"""Sizes of clusters are the same in every view, which says once of which rows they are, and of which means and rules are."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.experiment.config import Experiment
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.summary import summarise
from flareclust.experiment.reports.terminal import print_result
from flareclust.experiment.results.disclosure import disclosure_of
from flareclust.experiment.results.sizes import counts_by_site
from flareclust.experiment.sweeps.cluster_means import cluster_means
from flareclust.tracking.note import describe


def frame(n: int, seed: int, far: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"age": rng.normal(30 + 40 * (np.arange(n) % 2), 4), "crp": rng.normal(10, 5, n)})
    return pd.concat([rows, pd.DataFrame({"age": [900.0 + i for i in range(far)], "crp": [-900.0] * far})])


@pytest.fixture(scope="module")
def sites():
    return {"north": frame(160, 0, far=3), "south": frame(120, 1)}


@pytest.fixture(scope="module")
def groups(sites):
    own = {"profile": True, "policy": {"min_count": 5}, "row_name": "patients", "scale": "none"}
    return flareclust.run("lloyd", sites, k=2, seed=1, **own)


def test_every_view_has_the_rows_and_not_the_groups(groups, capsys):
    sizes = np.bincount(groups.labels, minlength=2)
    described = groups.arrays["profile_rows"]
    assert sizes.sum() == 283 > described.sum()
    print_result(groups)
    shown, page = " ".join(capsys.readouterr().out.split()), report_page(groups)
    for cluster, n in enumerate(sizes.tolist()):
        assert re.search(rf" {cluster} {n} age", shown)
        assert f"<div>{n} patients (" in page
    assert "patients of each site: north 163, south 120" in shown
    expected = (
        "izes are of all 283 patients, each in the nearest cluster; means and rules are of groups of 5 or more similar patients in "
        "their place, without patients in no group"  # 3, which is below the floor
    )
    assert shown.count(expected) == page.count(expected) == 1


@pytest.mark.parametrize("engine", ["poc", "production"])
def test_of_real_sites_rules_and_the_tree_say_that_they_may_be_of_groups(sites, engine, capsys):
    here = flareclust.run("lloyd", sites, k=2, seed=1, profile=True, row_name="patients", scale="none")
    real = replace(here, engine=engine)
    print_result(real)
    shown, page = " ".join(capsys.readouterr().out.split()), report_page(real)
    assert "of the patients (or groups of them, at sites with a policy) into their cluster" in shown
    assert "of such patients (or groups of them, at sites with a policy) are in it" in page
    assert "patients (or groups of them, at sites with a policy) that rules as those of the cards (a tree of" in page


def test_rules_and_the_tree_say_that_they_are_of_groups(groups, capsys):
    print_result(groups)
    shown, page = " ".join(capsys.readouterr().out.split()), report_page(groups)
    assert re.search(r"a tree of \d+ leaves puts \d+ % of the groups of patients into their cluster", shown)
    assert "of such groups of patients are in it" in page
    assert shown.count("fewer than min_count patients of a cluster that a rule parts from its others at a site") == 1
    assert page.count("where a rule parts only a few patients of a cluster from its others at a site (fewer than") == 1
    assert "groups of patients that rules as those of the cards (a tree of" in page


def test_without_a_policy_nothing_is_said_of_groups_and_what_is_not_described_is_counted(sites, capsys):
    result = flareclust.run("lloyd", sites, k=2, seed=1, profile=True, scale="none")
    assert summarise(result).sizes.tolist() == np.bincount(result.labels, minlength=2).tolist()
    print_result(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert "groups" not in shown + report_page(result)
    alone = {**sites, "north": frame(160, 0, far=2)}
    start = np.array([[30.0, 10.0], [70.0, 10.0], [900.0, -900.0]])
    few = flareclust.run("lloyd", alone, k=3, seed=1, profile=True, scale="none", start=start.tolist())
    assert summarise(few).counted.startswith(
        "sizes are of all 282 rows, each in the nearest cluster; means and rules are of 280 rows"
    )
    assert (
        "not counted there: 2 rows, which are too few of a cluster at their site (fewer than three, or than min_count)"
        in summarise(few).counted
    )


def test_where_labels_are_at_the_sites_sizes_are_those_that_they_described(groups):
    none = np.full(len(groups.labels), -1)
    far = replace(groups, labels=none, site_labels={}, engine="production", experiment={"row_name": "patients"})
    assert summarise(far).counted == (
        f"sizes, means and rules are of the {groups.arrays['profile_rows'].sum()} patients that the sites have described; one with a "
        "policy describes groups of patients in their place"
    )
    assert summarise(far).sizes.tolist() == groups.arrays["profile_rows"].tolist()


@pytest.mark.parametrize(
    ("more", "where"), [({}, "at a site"), ({"secure_sums": True}, "in all"), ({"profile": False}, "at a site")]
)
def test_what_a_policy_withholds_of_a_cluster_follows_from_no_other_number_of_the_page(more, where, capsys):
    rng = np.random.default_rng(0)
    parts = {"a": (180, 12, 4), "b": (170, 13, 3), "c": (173, 12, 2)}
    sites = {
        site: np.concatenate([rng.normal(at, 1, (n, 2)) for at, n in zip((0, 30, -60), own, strict=True)])
        for site, own in parts.items()
    }
    start = [[0.0, 0.0], [30.0, 30.0], [-60.0, -60.0]]
    own = {"profile": True, "policy": {"min_count": 10}, "start": start, "scale": "none"} | more
    result = flareclust.run("lloyd", sites, k=3, columns=["age", "crp"], **own)
    assert result.cluster_rows.tolist() == [523, 37, 9]
    print_result(result)
    views = capsys.readouterr().out, str(result), report_page(result), result._repr_html_(), summarise(result).counted
    note = describe(result, Experiment(**result.experiment))
    assert "| 2 | few |  |" in note
    views = (*views, note)
    told = [
        view
        for view in views
        if re.search(r"\b(569|9|4|187|188|196|186)\b rows|rows by cluster:.* 9|of 569|569 of", view)
    ]
    assert not told
    assert "<div>few rows</div>" in views[2] or ">few</td>" in views[2]
    assert f"sizes and totals leave out rows in clusters that have fewer than 10 {where}" in views[4]
    record = result.disclosure()["results"]
    assert (record["clusters"]["properties"]["smallest_cell"], record["cluster_rows"]["status"]) == (37, "fail")
    assert [file["name"] for file in record["cluster_rows"]["files"]] == ["result.json"]
    for site, rows in counts_by_site(result).items():
        assert rows.tolist() == [*parts[site][:2], 0], site
    kept = cluster_means(result)  # of a trial
    assert kept.rows == [523, 37]
    np.testing.assert_allclose(kept.center, np.average(kept.means, axis=0, weights=kept.rows), rtol=1e-4)


def test_a_site_of_which_a_policy_withholds_all_sizes_has_few_rows_and_not_none(capsys):
    rng = np.random.default_rng(0)
    sites = {
        site: np.concatenate([rng.normal(at, 1, (n, 2)) for at, n in zip((0, 8, 16), own, strict=True)])
        for site, own in {"a": (40, 40, 40), "b": (9, 9, 9)}.items()
    }
    start = [[0.0, 0.0], [8.0, 8.0], [16.0, 16.0]]
    result = flareclust.run(
        "lloyd", sites, k=3, columns=["age", "crp"], policy={"min_count": 10}, start=start, profile=True
    )
    assert [rows.tolist() for rows in counts_by_site(result).values()] == [[40] * 3, [0] * 3]
    print_result(result)
    page = report_page(result)
    assert "rows of each site: a 120, b few" in capsys.readouterr().out
    assert re.search(r'<td class="name">b</td>\s*<td class="n">few</td>', page)
    assert "<td>few</td>" in result._repr_html_()


@pytest.mark.parametrize("secure_sums", [False, True])
def test_the_record_on_the_page_tells_no_size_that_the_page_withholds(secure_sums):
    """The smallest cell of files beside the page would, less what the page shows of the other sites."""
    rng, places = np.random.default_rng(0), np.array([[0, 0], [20, 0], [0, 20]])
    sizes = {"north": (53, 61, 7), "south": (47, 59, 43), "west": (71, 67, 83)}
    sites = {name: np.repeat(places, n, axis=0) + rng.normal(0, 0.5, (sum(n), 2)) for name, n in sizes.items()}
    result = flareclust.run("lloyd", sites, 3, policy={"min_count": 10}, secure_sums=secure_sums)
    record, page = disclosure_of(result), report_page(result)
    assert record["results"]["cluster_rows"]["properties"]["smallest_cell"] == 133
    assert ">133<" not in page
    assert "disclosure.json has its smallest cell, which this page withholds" in page
    assert ">126<" in page
    assert "484 rows" in page
    assert "491" not in re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
