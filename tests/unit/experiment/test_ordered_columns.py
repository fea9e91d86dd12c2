"""Ordered columns in words: levels and shares in place of the places of the values, from cards to trees and the compare page."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.data.cells import levels_in, nearest_level, ordered
from flareclust.evaluation import agreement, profile_words
from flareclust.evaluation.moved import moved_since
from flareclust.evaluation.noisy_profiles import noisy_profiles_of
from flareclust.evaluation.profiles import Profiles, profiles_of
from flareclust.experiment.reports.columns import heat_tables, site_tables
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.placed import moved_tables
from flareclust.experiment.reports.terminal import print_result
from flareclust.experiment.sweeps.cluster_means import ClusterMeans, cluster_means
from flareclust.protocol import cluster_arrays as keys

LEVELS = ("I", "II", "III", "IV")
SCHEMA = "columns:\n  age: {type: number}\n  stage: {type: ordered, values: [I, II, III, IV]}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    rng, found = np.random.default_rng(0), tmp_path_factory.mktemp("ordered")
    (found / "data").mkdir()
    for site, n in (("north", 150), ("south", 120)):
        late = np.arange(n) % 2
        stage = [LEVELS[rng.choice(4, p=([0.6, 0.4, 0, 0], [0, 0, 0.7, 0.3])[one])] for one in late]
        table = pd.DataFrame({"age": rng.normal(60 + late, 8).round(1), "stage": stage})
        table.to_csv(found / "data" / f"{site}.csv", index=False)
    (found / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    return found


def run(folder: Path, **more) -> flareclust.Result:
    own = {"schema": str(folder / "schema.yaml"), "partition": "none", "scale": "range", "seed": 1}
    return flareclust.run("lloyd", str(folder / "data"), 2, **own | more)


@pytest.fixture(scope="module")
def result(folder):
    return run(folder)


@pytest.fixture(scope="module")
def rows(folder, result) -> pd.DataFrame:
    tables = [pd.read_csv(folder / "data" / f"{site}.csv") for site in ("north", "south")]
    return pd.concat(tables, ignore_index=True).assign(cluster=result.labels)


def test_the_levels_of_a_column_are_in_its_unit_and_come_back():
    assert ordered(LEVELS) == "ordered: I < II < III < IV"
    assert levels_in(ordered(LEVELS)) == LEVELS
    assert levels_in(ordered(["< 5", "5 to 9", "> 9"])) == ("< 5", "5 to 9", "> 9")
    assert levels_in("mg/l") == levels_in("") == ()
    assert [nearest_level(LEVELS, value) for value in (-0.4, 0.49, 0.5, 2.4, 3.7)] == [0, 0, 1, 2, 3]


def test_shares_of_the_levels_are_those_of_pandas(result, rows):
    profiles = profiles_of(result.arrays, result.columns)
    expected = pd.crosstab(rows["cluster"], rows["stage"])[list(LEVELS)]
    np.testing.assert_array_equal(profiles.level_counts[1], expected)
    shares = expected.loc[0] / expected.loc[0].sum()
    said = [f"{level} {profile_words.percent(share)}" for level, share in shares.items() if share]
    assert profile_words.level_shares(profiles, 0, 1) == said


def test_quartiles_are_levels(result, rows):
    table = result.profiles()
    own = table[table["column"] == "stage"].set_index("cluster")
    places = rows.assign(stage=rows["stage"].map(LEVELS.index)).groupby("cluster")["stage"]
    for name, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
        np.testing.assert_array_equal(own[name], places.quantile(share, interpolation="lower"))
    assert own["level"].tolist() == [LEVELS[round(mean)] for mean in places.mean()]
    assert table[table["column"] == "age"]["level"].isna().all()


def test_terminal_and_report_have_words_and_no_places(result, capsys):
    print_result(result)
    shown, page = " ".join(capsys.readouterr().out.split()), report_page(result)
    for text in (shown, page):
        assert re.search(r"stage (much )?higher: III \(all II+\), III or above 100 % \(all \d\d %\)", text)
        assert re.search(r"stage (much )?lower: I \(all II+\), II or below 100 % \(all \d\d %\)", text)
        assert "stage: II or below" in text
        assert "stage: III or above" in text
        assert not re.search(r"stage (>|&gt;|≤|higher: \d)", text)
    assert "of ordered values the one nearest to the mean" in page
    rules = result.profiles("tree")["conditions"].tolist()
    assert [one for one in rules if one.startswith("stage: ")]


def test_cells_of_a_report_have_the_nearest_level_and_the_shares(result):
    profiles = profiles_of(result.arrays, result.columns)
    (table,) = heat_tables(profiles)
    stage = next(row for row in table.rows if row[0].text == "stage")
    assert stage[0].lines == ["nearest value, shares"]
    assert {stage[1], *(cell.text for cell in stage[2:-1])} <= set(LEVELS)
    assert all(re.fullmatch(r"I+V? \d+ %", line) for cell in stage[2:-1] for line in cell.lines)
    sites = next(row for row in site_tables(profiles)[0].rows if row[0].text == "stage")
    assert {sites[1], *(cell.text for cell in sites[2:])} <= set(LEVELS)


def test_groups_of_a_policy_that_lie_between_levels_have_the_nearest_and_no_shares(folder):
    result = run(folder, policy={"min_count": 32}, scale="none")
    profiles = profiles_of(result.arrays, result.columns)
    assert profiles.level_counts == {}
    (table,) = heat_tables(profiles)
    stage = next(row for row in table.rows if row[0].text == "stage")
    assert stage[0].lines == ["nearest value"]
    assert {stage[1], *(cell.text for cell in stage[2:-1])} <= set(LEVELS)
    assert not [line for cell in stage[2:-1] for line in cell.lines]
    quartiles = result.profiles().query("column == 'stage'")[["q25", "median", "q75"]].to_numpy()
    assert np.isin(quartiles, range(4)).all()
    for mean, text in (
        ([0.9, 2.9], "stage higher: IV (all III)"),
        ([1.6, 2.4], "stage higher: nearest to III, as all"),
    ):
        arrays = result.arrays | {keys.MEANS: np.array([[60.0, 1.0], [60.0, 1.0]])}
        arrays[keys.MEANS][:, 1] = mean
        said = profile_words.sentence(profiles_of(arrays, result.columns), 1).replace("much ", "")
        assert said == text


def test_later_rows_have_levels(result, folder):
    later = pd.read_csv(folder / "data" / "north.csv")
    table = flareclust.read_table(later, folder / "schema.yaml")
    moved = moved_since(profiles_of(result.arrays, result.columns), "north", table.X, result.predict(table))
    _, columns = moved_tables(moved)
    assert {cell for row in columns.rows if row[0].text == "stage" for cell in row[1:3]} <= set(LEVELS)


def test_means_of_a_study_keep_the_levels(folder):
    own = cluster_means(run(folder, profile=False))
    assert own.units == ("", ordered(LEVELS))
    assert ClusterMeans.from_json(own.to_json()) == own
    values = own.to_json()
    del values["units"]  # trials of an earlier version have none
    assert ClusterMeans.from_json(values).units == ()


def test_a_site_whose_values_lie_apart_is_said_in_levels():
    numbers = [[200.0] * 3], [[0.1], [0.1], [2.9]], [[0.05], [0.05], [0.05]]
    cells, means, deviations = (np.array(one, dtype=float).reshape(3, 1) for one in numbers)
    units = {"stage": ordered(LEVELS)}
    [text] = agreement.unit_warnings(["a", "b", "c"], cells, means, deviations, ["stage"], units)
    assert "(mean IV, elsewhere I)" in text


BETWEEN = [
    (0.5, None, "II or above"),
    (-0.5, 0.5, "I"),
    (None, -0.0, "I"),
    (-0.0, None, "II or above"),
    (0.0, 2.0, "II or III"),
    (2.5, None, "IV"),
    (None, 1.4, "II or below"),
    (0.4, 1.6, "II"),
    (1.2, 1.8, "between II and III"),
    (None, 9.0, "I or above"),
]


@pytest.mark.parametrize(("low", "high", "text"), BETWEEN)
def test_conditions_name_the_levels_between_the_edges(low, high, text):
    n_splits, rows = 15, np.zeros((31, 2), dtype=np.int64)
    column, edge = np.full(n_splits, -1), np.zeros(n_splits)
    leaf = 0
    for bound, way in ((low, 2), (high, 1)):
        if bound is not None:
            column[leaf], edge[leaf] = 0, bound
            rows[2 * leaf + 3 - way] = [0, 5]  # what the other branch has
            leaf = 2 * leaf + way
    rows[leaf] = [9, 0]
    arrays = {keys.ROWS: np.array([9, 5]), keys.MEANS: np.array([[1.0], [2.0]]), keys.SQUARES: np.ones((2, 1))}
    arrays |= {keys.UNITS: np.array([ordered(LEVELS)]), keys.TREE_COLUMN: column, keys.TREE_EDGE: edge}
    profiles = Profiles(("stage",), arrays | {keys.TREE_ROWS: rows})
    assert f"stage: {text}" in [one.text for one in profile_words.branches(profiles) if one.cluster == 0]


def test_released_means_have_the_nearest_level_and_no_shares():
    arrays = {"counts": np.array([100, 300]), "signal_to_noise": np.array([900.0, 900.0]), "reach": np.array(1.0)}
    arrays |= {"low": np.zeros(2), "high": np.array([100.0, 3.0]), keys.UNITS: np.array(["years", ordered(LEVELS)])}
    profiles = noisy_profiles_of(arrays, np.array([[20.0, 0.2], [60.0, 2.9]]), ("age", "stage"))
    assert "stage much lower: I (all III)" in profile_words.sentence(profiles, 0)
    (table,) = heat_tables(profiles)
    stage = next(row for row in table.rows if row[0].text == "stage")
    assert [getattr(cell, "text", cell) for cell in stage[1:]] == ["III", "I", "IV"]
