"""Outcomes in the schema: what is read of them, that no clustering depends on them, and what a run says of the clusters."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust.cli.main import main
from flareclust.data.schema.columns import read_schema
from flareclust.evaluation.outcomes import ClusterOutcomes
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result
from flareclust.experiment.tables.typed_files import read_table

SCHEMA = """
columns:
  patient: {type: id}
  a: {type: number}
  b: {type: number}
  days: {type: number, unit: d, range: [0, 4000]}
  died: {type: category, values: ["no", "yes"]}
  score: {type: number}
  grade: {type: ordered, values: [low, mid, high]}
"""
TIMED = "outcome: {time: days, event: died=yes, every: 30, until: 900}\n"
ROWS = 120


def schema_file(folder: Path, outcome: str = TIMED, columns: str = SCHEMA) -> Path:
    """Write a schema whose other columns are ignored."""
    used = outcome.partition("outcome:")[2]
    for name, kind in (
        ("days", "{type: number, unit: d, range: [0, 4000]}"),
        ("died", '{type: category, values: ["no", "yes"]}'),
        ("score", "{type: number}"),
        ("grade", "{type: ordered, values: [low, mid, high]}"),
    ):
        if name not in used:
            columns = columns.replace(f"{name}: {kind}", f"{name}: ignore")
    path = folder / f"schema-{abs(hash(outcome))}.yaml"
    path.write_text(columns + outcome, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables of three sites in `data`."""
    there, rng = tmp_path_factory.mktemp("outcomes"), np.random.default_rng(0)
    (there / "data").mkdir()
    for site in ("east", "north", "west"):
        lines = ["patient,a,b,days,died,score,grade"]
        for i in range(ROWS):
            c = rng.integers(3)
            a, b = rng.normal(([0, 8, 0][c], [0, 0, 8][c]))
            days = min(int(rng.exponential(200 + 300 * c)) + 1, 4000)
            died = "yes" if rng.random() < 0.7 else "no"
            grade = ("low", "mid", "high")[min(2, rng.integers(2) + c)]
            lines.append(
                f"{site}{i},{a:.4f},{b:.4f},{days if i else ''},{died},{rng.normal(50 + 5 * c, 4):.3f},{grade}"
            )
        (there / "data" / f"{site}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return there


def run(folder: Path, outcome: str = TIMED, **settings: Any) -> flareclust.Result:
    schema = str(schema_file(folder, outcome))
    options = {"k": 3, **settings}
    return flareclust.run("lloyd", str(folder / "data"), partition="none", schema=schema, **options)


def test_outcomes_are_read_and_are_no_features(folder: Path) -> None:
    schema = schema_file(folder)
    assert read_schema(schema).features == ("a", "b")
    table = read_table(folder / "data" / "east.csv", schema)
    assert table.columns == ("a", "b")
    assert table.outcomes is not None
    assert table.outcomes.shape == (ROWS, 2)
    assert np.isnan(table.outcomes[0, 0])  # the first one's days are missing
    assert set(table.outcomes[:, 1].tolist()) == {0.0, 1.0}
    graded = read_table(folder / "data" / "east.csv", schema_file(folder, "outcome: {value: grade}\n"))
    assert graded.outcomes is not None
    assert set(graded.outcomes.ravel().tolist()) <= {0.0, 1.0, 2.0}


def test_the_schemas_fingerprint_covers_the_outcome(folder: Path) -> None:
    finer = read_schema(schema_file(folder, TIMED.replace("30", "10"))).fingerprint
    assert (
        len({finer, read_schema(schema_file(folder)).fingerprint, read_schema(schema_file(folder, "")).fingerprint})
        == 3
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            "{time: days, event: died=yes}",
            "outcome: until is missing (until is the last time that counts, in the unit of the times); expected time, event and until",
        ),
        ("{time: days, until: 900}", "outcome: event is missing; expected time, event and until"),
        ("{time: days}", "outcome: event and until are missing (until is the last time"),
        ("{every: 30}", "outcome: expected time, event and until"),
        (
            "{time: days, event: died=yes, until: 900, value: score}",
            "value stands alone, without time, event and until",
        ),
        ("{time: dayz, event: died=yes, until: 900}", "no column 'dayz' (did you mean 'days'?)"),
        ("{time: died, event: died=yes, until: 900}", "time needs a column of type number, not category"),
        ("{time: days, event: died, until: 900}", "event needs a value of a column of type category"),
        (
            "{time: days, event: died=maybe, until: 900}",
            "got 'died=maybe', and died is of type category with the values no, yes",
        ),
        ("{time: days, event: grade=high, until: 900}", "got 'grade=high', and grade is of type ordered"),
        ("{time: days, event: died=yes, until: 900, every: 1000}", "0 < every <= until"),
        ("{time: days, event: died=yes, until: 900, every: 0.01}", "at most 4,000 intervals"),
        ("{value: patient}", "value needs a column of type category, ordered or number, not id"),
    ],
)
def test_impossible_outcomes_are_refused(tmp_path: Path, outcome: str, words: str) -> None:
    file = tmp_path / "schema.yaml"
    file.write_text(f"{SCHEMA}outcome: {outcome}\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_schema(file)
    assert words in str(error.value)


def test_wrong_cells_are_counted_with_the_others(tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    columns = "columns:\n  a: number\n  t: number\n  e: number\noutcome: {time: t, event: e, until: 10}\n"
    schema.write_text(columns, encoding="utf-8")
    (tmp_path / "x.csv").write_text("a,t,e\n1,2,0\n2,-3,1\n3,4,2\n4,,1\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_table(tmp_path / "x.csv", schema)
    assert "t: 1 cell is below 0, where times begin, first in row 2" in str(error.value)
    assert "e: 1 cell is neither 0 nor 1, first in row 3" in str(error.value)


def test_duplicates_and_dropped_rows_leave_with_their_outcomes(tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    columns = "duplicates: first\ncolumns:\n  i: id\n  a: {type: number, missing: drop-rows}\n  s: number\noutcome: {value: s}\n"
    schema.write_text(columns, encoding="utf-8")
    (tmp_path / "x.csv").write_text("i,a,s\nu,1,10\nv,,20\nu,3,30\nw,4,40\n", encoding="utf-8")
    table = read_table(tmp_path / "x.csv", schema)
    assert table.outcomes is not None
    assert (table.X[:, 0].tolist(), table.outcomes[:, 0].tolist()) == ([1.0, 4.0], [10.0, 40.0])


def test_no_clustering_depends_on_outcomes(folder: Path) -> None:
    without, timed, valued = (run(folder, outcome) for outcome in ("", TIMED, "outcome: {value: score}\n"))
    for result in (timed, valued):
        np.testing.assert_array_equal(result.centroids, without.centroids)
        np.testing.assert_array_equal(result.labels, without.labels)
        assert result.metrics == without.metrics
        for name, value in without.arrays.items():
            np.testing.assert_array_equal(result.arrays[name], value)


def known(folder: Path, result: flareclust.Result, outcome: str) -> tuple[Any, Any]:
    """Return the outcomes and the labels of the rows at all sites whose outcome is known."""
    schema = schema_file(folder, outcome)
    tables = {site: read_table(folder / "data" / f"{site}.csv", schema).outcomes for site in result.site_labels}
    outcomes = np.concatenate([own for own in tables.values() if own is not None])
    labels = np.concatenate(list(result.site_labels.values()))
    complete = ~np.isnan(outcomes).any(axis=1)
    return outcomes[complete], labels[complete]


@pytest.mark.parametrize("secure_sums", [False, True])
def test_counts_are_those_of_the_rows_and_their_labels(folder: Path, secure_sums: bool) -> None:
    result = run(folder, secure_sums=secure_sums)
    outcomes, labels = known(folder, result, TIMED)
    events = np.bincount(labels[(outcomes[:, 0] <= 900) & (outcomes[:, 1] == 1)], minlength=3)
    found = result.outcomes_by_cluster()
    assert found["events"].tolist() == events.tolist()
    assert found["rows"].tolist() == np.bincount(labels, minlength=3).tolist()
    assert found["rows"].sum() == 3 * ROWS - 3  # three have no days
    tests = ["log-rank test", "log-rank test, stratified by site"]
    assert list(result.outcomes_by_cluster("tests")["name"]) == tests[: 1 if secure_sums else 2]
    assert result.outcomes_by_cluster("curves")["survival"].between(0, 1).all()
    assert ("outcome_site_counts" in result.arrays) != secure_sums


@pytest.mark.parametrize("secure_sums", [False, True])
def test_means_are_those_of_the_rows_and_their_labels(folder: Path, secure_sums: bool) -> None:
    outcome = "outcome: {value: score}\n"
    result = run(folder, outcome, secure_sums=secure_sums)
    outcomes, labels = known(folder, result, outcome)
    found = result.outcomes_by_cluster()
    for c in range(3):
        own = outcomes[labels == c, 0]
        assert (found["mean"][c], found["sd"][c]) == pytest.approx((own.mean(), own.std(ddof=1)), rel=1e-9)


def test_matched_clusters_keep_their_outcomes(folder: Path) -> None:
    result = run(folder)
    again = run(folder, seed=5).match_to(result)
    np.testing.assert_array_equal(again.arrays["outcome_counts"].sum(axis=(0, 2)), ClusterOutcomes(result.arrays).rows)


@pytest.mark.parametrize("secure_sums", [False, True])
@pytest.mark.parametrize("outcome", [TIMED, "outcome: {value: grade}\n"])
def test_a_policy_lets_out_no_small_number_and_says_so(folder: Path, outcome: str, secure_sums: bool) -> None:
    result = run(folder, outcome, policy={"min_count": 10}, secure_sums=secure_sums)
    if not secure_sums:
        sent = result.arrays["outcome_site_counts"]
        assert not ((sent > 0) & (sent < 10)).any()
    assert int(result.arrays["outcome_adjusted"]) == 3
    assert any("outcomes are not exact: the policy of 3 sites" in warning for warning in result.warnings)
    at_real_sites = replace(result, engine="production", experiment={**result.experiment, "policy": None})
    record = at_real_sites.disclosure()["results"]["outcomes"]
    assert "the thresholds of the sites' policies are not known here" in record["comments"]
    first, _, section = report_page(result).partition("What became of them")
    assert "outcomes are not exact: the policy" in first
    assert "Outcomes are not exact: the policy" in section.partition("</section>")[0]
    assert result.outcomes_by_cluster()[["lower", "upper"]].isna().all(axis=None)
    assert not len(result.outcomes_by_cluster("tests"))
    assert "rows (not exact)" in section
    assert "outcomes of the clusters" in section
    assert "outcomes of the clusters, with a test" not in section
    assert "outcomes of the clusters, with a test" in report_page(run(folder, outcome))
    assert "small p" not in section
    assert "the bands are" not in section
    assert "o test: it would take rounded numbers for differences" in section
    rounded = run(folder, outcome, policy={"min_count": 10, "round_counts": 25}, secure_sums=secure_sums)
    assert not (rounded.arrays["outcome_counts"] % 25).any()
    assert rounded.outcomes_by_cluster()["rows"].sum() == pytest.approx(3 * ROWS, rel=0.35) or outcome != TIMED
    again = run(folder, outcome, policy={"min_count": 10}, secure_sums=secure_sums)
    np.testing.assert_array_equal(result.arrays["outcome_counts"], again.arrays["outcome_counts"])


def test_differential_privacy_has_none_and_says_so(folder: Path) -> None:
    schema = str(schema_file(folder))
    bounds = {"a": [-20, 20], "b": [-20, 20]}
    policy = {"differential_privacy": {"bounds": bounds, "epsilon": 2, "delta": 1e-5, "budget": 5}}
    result = flareclust.run("dp-lloyd", str(folder / "data"), partition="none", schema=schema, k=2, policy=policy)
    assert any("there are no outcomes of the clusters: under differential privacy" in w for w in result.warnings)
    with pytest.raises(UserError, match="there are no outcomes of the clusters: under differential privacy"):
        result.outcomes_by_cluster()


def test_a_site_without_outcomes_is_named(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for file in (folder / "data").iterdir():
        (data / file.name).write_bytes(file.read_bytes())
    (data / "west.mapping.yaml").write_text("lacks: [died]\n", encoding="utf-8")
    schema = str(schema_file(folder))
    result = flareclust.run("lloyd", str(data), partition="none", schema=schema, k=3)
    assert any(w.startswith("west has no outcomes") and w.endswith("(in the outcomes)") for w in result.warnings)
    assert result.arrays["outcome_sites"].tolist() == ["east", "north"]


def test_they_are_in_the_report_the_terminal_and_the_saved_result(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for outcome, words in (
        (TIMED, "time until died is yes (d)"),
        ("outcome: {value: died}\n", "died"),
        ("outcome: {value: score}\n", "score"),
    ):
        result = run(folder, outcome)
        page = report_page(result)
        assert "What became of them" in page
        assert words.capitalize() in page
        assert ("Kaplan-Meier" in page) == (outcome == TIMED)
        print_result(result)
        assert "degrees of freedom, p" in capsys.readouterr().out
    run(folder).save(tmp_path / "out")
    saved = flareclust.load_result(tmp_path / "out")
    assert saved.outcomes_by_cluster().equals(run(folder).outcomes_by_cluster())
    with pytest.raises(UserError, match="expected outcomes of"):
        saved.outcomes_by_cluster("curve")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="curves are of a time"):
        run(folder, "outcome: {value: died}\n").outcomes_by_cluster("curves")


def test_shares_have_their_interval_below_them_on_a_page_so_that_a_phone_shows_all_columns(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(folder, "outcome: {value: grade}\n")
    page = report_page(result)
    assert len(re.findall(r'<td class="n">\d+ %<div class="spread"><?.*? to \d+ %</div></td>', page)) >= 6
    assert '<table class="became">' in page
    assert "table.became td.n { white-space: normal;" in page
    assert "100% scroll" in page  # the shadow where a table scrolls
    print_result(result)
    shown = capsys.readouterr().out
    assert len(re.findall(r"\d+ % \(<?\d+ % to \d+ %\)", shown)) >= 6
    assert "each share is shown with its 95 % interval" in shown


def test_a_result_without_outcomes_says_how_to_get_some(folder: Path) -> None:
    with pytest.raises(UserError, match="name one in the schema"):
        run(folder, "").outcomes_by_cluster()


def test_a_result_whose_sites_all_lack_the_outcome_says_so(folder: Path, tmp_path: Path) -> None:
    columns, data = SCHEMA.replace("days: {type: number, unit: d, range: [0, 4000]}", "days: ignore"), tmp_path / "data"
    data.mkdir()
    for site in ("east", "north"):
        (data / f"{site}.csv").write_bytes((folder / "data" / f"{site}.csv").read_bytes())
        (data / f"{site}.mapping.yaml").write_text("lacks: [score]\n", encoding="utf-8")
    schema = schema_file(tmp_path, "outcome: {value: score}\n", columns)
    result = flareclust.run("lloyd", str(data), partition="none", schema=str(schema), k=2, seed=1)
    with pytest.raises(UserError, match="has no outcomes: its mapping lacks their columns"):
        result.outcomes_by_cluster()


def test_texts_in_a_column_of_events_are_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,days,seen\n1,2,3,Y\n4,5,6,N\n7,8,9,1\n", encoding="utf-8")
    schema = tmp_path / "schema.yaml"
    columns = "columns: {a: number, b: number, days: number, seen: number}\n"
    schema.write_text(columns + "outcome: {time: days, event: seen, until: 10}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"seen.*2 cells are no number.*make it a category, and event: seen=yes"):
        read_table(tmp_path / "a.csv", schema)


def test_a_value_whose_time_is_among_the_features_is_named_wherever_the_schema_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = folder / "leaks.yaml"
    schema.write_text("missing: drop-rows" + SCHEMA + "outcome: {value: died}\n", encoding="utf-8")
    hint = "column 'days': by the name known with the outcome (died) only, yet it is among the features"
    result = flareclust.run("lloyd", str(folder / "data"), partition="none", schema=str(schema), k=3)
    assert sum(hint in text for text in result.warnings) == 1
    north = str(folder / "data" / "north.csv")
    for words in (
        ["schema", "check", north, "--schema", str(schema)],
        ["run", "lloyd", "--data", north, "--schema", str(schema), "--k", "3", "--dry-run"],
        ["jobs", "export", "lloyd", str(folder / "job"), "--schema", str(schema), "--k", "3"],
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert f"hint: {hint}" in capsys.readouterr().out
