"""What a report says of columns and sites: mean and spread, medians of skewed columns, means of each site, title and the word for rows."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.reports.columns import heat_tables, site_tables
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(0)
    found = {}
    for site, n in {"north": 120, "south": 90, "west": 60}.items():
        age = rng.normal(30, 4, n) + 80 * (np.arange(n) % 2)
        found[site] = pd.DataFrame({"age": age, "crp": rng.exponential(20, n), "smoker": np.arange(n) % 3 == 0}) * 1.0
    return found


@pytest.fixture(scope="module")
def result(sites, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "out"
    own = {"profile": True, "scale": "none", "title": "Lung <study>", "row_name": "patients", "out": out}
    return flareclust.run("portfolio", sites, k=2, **own)


def test_means_of_each_site_are_those_of_pandas(result, sites):
    profiles = profiles_of(result.arrays, result.columns)
    expected = pd.DataFrame({site: frame.mean() for site, frame in sites.items()}).T
    assert list(profiles.site_rows) == list(expected.index)
    np.testing.assert_allclose(profiles.site_means, expected[list(profiles.columns)], rtol=1e-9)
    (table,) = site_tables(profiles)
    assert [head.text for head in table.heads] == ["column", "all sites", "north", "south", "west"]
    assert {row[0].text for row in table.rows} == {"age", "crp", "smoker"}


def test_sites_with_missing_cells_have_the_means_of_the_known_ones(sites):
    gaps = {site: frame.mask(np.random.default_rng(1).random(frame.shape) < 0.1) for site, frame in sites.items()}
    found = flareclust.run("portfolio", gaps, k=2, profile=True, missing="mean", scale="standard")
    profiles = profiles_of(found.arrays, found.columns)
    expected = pd.DataFrame({site: frame.mean() for site, frame in gaps.items()}).T
    np.testing.assert_allclose(profiles.site_means, expected[list(profiles.columns)], rtol=1e-9)


def test_one_site_or_a_result_without_means_of_sites_has_no_table(result):
    arrays = {name: value for name, value in result.arrays.items() if name != "profile_site_means"}
    assert site_tables(profiles_of(arrays, result.columns)) == []


def test_a_skewed_column_has_its_median_and_quartiles_and_others_their_deviation(result, sites):
    profiles = profiles_of(result.arrays, result.columns)
    assert dict(zip(profiles.columns, profiles.skewed.tolist(), strict=True)) == {
        "age": False,
        "crp": True,
        "smoker": False,
    }
    (table,) = heat_tables(profiles)
    rows = {row[0].text: row for row in table.rows}
    assert rows["crp"][0].lines == ["median (quartiles)"]
    said = "where a column is skewed, median (quartiles), though the cards above and the mean of all have means"
    assert said in report_page(result)
    plain = {site: frame[["age", "smoker"]] for site, frame in sites.items()}
    assert said not in report_page(flareclust.run("portfolio", plain, k=2, profile=True, scale="none"))
    crp = pd.concat([frame["crp"] for frame in sites.values()])
    own = crp[np.concatenate([result.site_labels[site] for site in sites]) == 0]
    shown = float(rows["crp"][2].text)
    assert abs(shown - own.median()) < 0.1 * own.std()
    assert shown < own.mean() - 0.1 * own.std()
    assert rows["crp"][2].lines[0].startswith("(")
    assert rows["age"][2].lines == ["± 4"]
    assert rows["smoker"][2].lines == ()


def test_report_terminal_and_notebook_have_the_title_and_the_word_for_rows(result, capsys):
    page = report_page(result)
    assert "<h1>Lung &lt;study&gt;</h1>" in page
    assert (
        f"270 patients of 3 sites: north, south, west. Clustered by portfolio into k=2, simulated in one process, on {result.date}."
        in page
    )
    assert "0<small>: " in page
    print_result(result)
    said = capsys.readouterr().out
    assert said.startswith("Lung <study>\n")
    assert "patients of each site: north 120, south 90, west 60" in said
    html = result._repr_html_()
    assert "Lung &lt;study&gt;: portfolio" in html
    assert "<td>north</td><td>120</td>" in html


def test_a_loaded_result_keeps_title_word_and_date(result):
    loaded = flareclust.load_result(result.centroids_file.rpartition("/")[0])
    assert loaded.date == result.date
    assert report_page(loaded).count("patients") >= 5


@pytest.mark.parametrize("wrong", [{"title": ""}, {"title": "two\nlines"}, {"row_name": "x" * 31}, {"row_name": " "}])
def test_titles_are_in_one_line(sites, wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        flareclust.run("lloyd", sites, k=2, **wrong)
