"""Rows that no outcome counts, since their site has few of their cluster: the result, its tables, the terminal and the report say so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flareclust
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import print_result

TIMED, SCORE, GRADE = "{time: t, event: died=yes, until: 100}", "{value: t}", "{value: died}"


def run(
    folder: Path,
    few: dict[str, int],
    outcome: str = TIMED,
    unknown: int = 0,
    apart: float = 100.0,
    algorithm: str = "lloyd",
    **settings: Any,
) -> flareclust.Result:
    """Cluster sites with 40 rows about 0 and `few` rows about `apart` each; of so many of the 40 the time is unknown."""
    rng = np.random.default_rng(0)
    columns = 'columns:\n  a: number\n  b: number\n  t: number\n  died: {type: category, values: ["no", "yes"]}\n'
    if outcome != TIMED:
        columns = (
            columns.replace("t: number", "t: ignore")
            if outcome == GRADE
            else columns.partition("  died")[0] + "  died: ignore\n"
        )
    (folder / "schema.yaml").write_text(f"{columns}outcome: {outcome}\n", encoding="utf-8")
    (folder / "data").mkdir(exist_ok=True)
    for site, n in few.items():
        rows = np.concatenate([rng.normal(size=(40, 2)), rng.normal(apart, 1, size=(n, 2))])
        lines = [
            f"{a:.5f},{b:.5f},{'' if i < unknown else f'{rng.uniform(1, 90):.2f}'},{('no', 'yes')[i % 2]}"
            for i, (a, b) in enumerate(rows)
        ]
        (folder / "data" / f"{site}.csv").write_text("\n".join(["a,b,t,died", *lines, ""]), encoding="utf-8")
    schema = str(folder / "schema.yaml")
    return flareclust.run(algorithm, str(folder / "data"), partition="none", schema=schema, k=2, seed=1, **settings)


def said(result: flareclust.Result) -> list[str]:
    return [warning for warning in result.warnings if warning.startswith("outcomes leave out")]


@pytest.mark.parametrize("outcome", [TIMED, SCORE, GRADE])
def test_rows_of_small_clusters_of_a_site_are_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: str
) -> None:
    result = run(tmp_path, {"north": 3, "south": 1, "west": 1}, outcome)
    small = int(np.argmax(result.centroids[:, 0]))
    (warning,) = said(result)
    assert warning.startswith(
        f"outcomes leave out 2 of 125 rows (2 of 5 in cluster {small}), so curves, shares, means and tests"
    )
    assert "a site has fewer than 3 rows with a known outcome" in warning
    assert warning.endswith("ask for fewer clusters")
    table = result.outcomes_by_cluster()
    own = table[table["cluster"] == small]
    assert own["rows"].sum() == 3
    assert set(own["not_counted"]) == {2}
    assert not table["not_counted"][table["cluster"] != small].any()
    print_result(result)
    printed = capsys.readouterr().out
    assert "not counted" in printed
    assert max(map(len, printed[printed.index(" cluster    rows") :].partition("\n\n")[0].splitlines()[:3])) <= 80
    assert "outcomes leave out 2 of 125 rows" in printed.replace("\n", " ")
    page = report_page(result)
    assert '<th class="n">not counted</th>' in page
    assert "outcomes leave out 2 of 125 rows" in page.replace("Outcomes", "outcomes")
    record = result.disclosure()["results"]["outcomes_not_counted"]
    assert record["status"] != "pass"
    again = result.match_to(result)
    np.testing.assert_array_equal(again.arrays["outcome_not_counted"], result.arrays["outcome_not_counted"])


@pytest.mark.parametrize("outcome", [TIMED, SCORE])
def test_unknown_outcomes_are_counted_and_no_others_are_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: str
) -> None:
    result = run(tmp_path, {"north": 3, "south": 4, "west": 1}, outcome, unknown=5, row_name="patients")
    large = int(np.argmin(result.centroids[:, 0]))
    unknown = f"the outcome of 15 of 128 patients (15 of 120 in cluster {large}) is unknown; curves, shares, means and"
    assert [warning.startswith(unknown) for warning in result.warnings].count(True) == 1
    assert "outcomes leave out 1 of 128 patients" in said(result)[0]
    print_result(result)
    assert unknown in capsys.readouterr().out.replace("\n", " ")
    assert unknown in report_page(result)


def test_nothing_is_said_where_all_rows_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path, {"north": 3, "south": 4, "west": 0})
    assert not said(result)
    print_result(result)
    printed = capsys.readouterr().out
    assert "not counted" not in printed
    assert "unknown" not in printed
    assert not result.outcomes_by_cluster()["not_counted"].any()


def test_a_larger_min_count_is_named(tmp_path: Path) -> None:
    (warning,) = said(run(tmp_path, {"north": 12, "south": 9, "west": 12}, min_count=10))
    assert warning.startswith("outcomes leave out 9 of 153 rows (9 of 33 in cluster")
    assert "fewer than 10 rows" in warning
    assert warning.endswith("ask for fewer clusters, or a smaller min_count")


def test_secure_sums_cannot_tell_few_rows_from_unknown_outcomes(tmp_path: Path) -> None:
    result = run(tmp_path, {"north": 5, "south": 5, "west": 5}, unknown=2, secure_sums=True)
    (warning,) = said(result)
    assert "outcomes leave out 6 of 135 rows (6 of 120 in cluster" in warning
    assert "their outcome is unknown, or a cluster in which a site" in warning
    assert not any(other.startswith("the outcome of") for other in result.warnings)


def test_a_policy_says_that_numbers_are_not_exact_and_nothing_else(tmp_path: Path) -> None:
    result = run(tmp_path, {"north": 12, "south": 12, "west": 12}, policy={"min_count": 10, "min_rows": 10})
    assert not said(result)
    assert any(
        "outcomes are not exact" in warning and "they have no intervals and no test" in warning
        for warning in result.warnings
    )


@pytest.mark.parametrize("last", [47.1, 0.1])
def test_values_that_are_all_alike_count(tmp_path: Path, last: float) -> None:
    (tmp_path / "data").mkdir()
    rng, means = np.random.default_rng(0), []
    for site, ending in (("north", 0.1), ("south", last)):
        X = np.concatenate([rng.normal(size=(40, 2)), rng.normal(100, 1, size=(40, 2))])
        values = np.r_[np.full(39, 0.1), ending, np.full(40, 0.7)]
        lines = [f"{a:.5f},{b:.5f},{value}" for (a, b), value in zip(X, values, strict=True)]
        (tmp_path / "data" / f"{site}.csv").write_text("\n".join(["a,b,t", *lines, ""]), encoding="utf-8")
        means.append(values[:40].mean())
    schema = tmp_path / "schema.yaml"
    schema.write_text("columns: {a: number, b: number, t: number}\noutcome: {value: t}\n", encoding="utf-8")
    data = str(tmp_path / "data")
    result = flareclust.run("lloyd", data, partition="none", schema=str(schema), k=2, seed=1)
    low = int(np.argmin(result.centroids[:, 0]))
    table = result.outcomes_by_cluster()
    assert table["rows"].tolist() == [80, 80]
    assert not table["not_counted"].any()
    assert not said(result)
    assert table["mean"][low] == pytest.approx(np.mean(means), rel=1e-12)
    assert table["sd"][1 - low] == 0.0
    assert len(result.outcomes_by_cluster("tests")) == 0  # a cluster without spread is in no test
    assert result.disclosure()["results"]["outcomes"]["status"] != "pass"


def test_a_policy_says_that_it_leaves_out_groups_whose_values_are_alike(tmp_path: Path) -> None:
    result = run(tmp_path, {"north": 12, "south": 12}, SCORE, policy={"min_count": 10, "min_rows": 10})
    assert any(
        "groups whose values are all alike" in warning and "name a category" in warning for warning in result.warnings
    )


@pytest.mark.parametrize("algorithm", ["gmm", "kfed", "tree"])
def test_labels_that_go_by_another_rule_than_the_nearest_centroid_are_compared_in_all(
    tmp_path: Path, algorithm: str
) -> None:
    few = {"north": 60, "south": 60}
    result = run(tmp_path, few, apart=1.5, algorithm=algorithm)
    table = result.outcomes_by_cluster()
    none = 200 - int(table["rows"].sum())  # of a tree some rows are in no cluster
    assert (none > 0) == (algorithm == "tree")
    assert not table["not_counted"].any()
    assert not [text for text in result.warnings if "is unknown;" in text]
    assert [text.partition(",")[0] for text in said(result)] == [f"outcomes leave out {none} of 200 rows"] * (none > 0)
    result = run(tmp_path, few, apart=1.5, algorithm=algorithm, unknown=4)
    (text,) = said(result)
    assert text.startswith(
        f"outcomes leave out {200 - result.outcomes_by_cluster()['rows'].sum()} of 200 rows, so curves"
    )
    assert "their outcome is unknown, they are in no cluster, or a cluster in which a site has fewer than" in text
