"""Rows that came after a run at a site that took part: placed, with what has moved since."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.engines.late_sites import read_finished, row_name_of
from flareclust.evaluation.moved import moved_since
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.reports.placed import moved_tables
from flareclust.experiment.reports.terminal import print_placed
from flareclust.experiment.tables.late_rows import moved_in, place_file


def frame(n: int, shift: float, seed: int, shares=(0.5, 0.5)) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = rng.choice(2, n, p=shares)
    return pd.DataFrame({"age": rng.normal(30 + 50 * y, 4) + shift, "crp": rng.normal(10 + 60 * y, 5)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("moved") / "run"
    flareclust.run("portfolio", {"north": frame(300, 0, 1), "south": frame(200, 0, 2)}, k=2, profile=True, out=out)
    return out


def moved_of(folder, rows: pd.DataFrame, site="north"):
    result = flareclust.load_result(folder)
    return moved_since(profiles_of(result.arrays, result.columns), site, rows.to_numpy(), result.predict(rows))


def test_shares_and_means_are_those_of_the_rows(folder):
    rows = frame(150, 0, 3)
    moved, labels = moved_of(folder, rows), flareclust.load_result(folder).predict(rows)
    np.testing.assert_array_equal(moved.rows_now, np.bincount(labels, minlength=2))
    np.testing.assert_allclose(moved.now, rows.mean(), rtol=1e-12)
    np.testing.assert_allclose(moved.then, frame(300, 0, 1).mean(), rtol=1e-9)
    assert moved.site == "north"
    assert list(moved.sentences()) == ["neither shares of clusters nor columns have moved by more than chance"]


def test_points_are_between_the_shares_that_are_shown(folder):
    moved = replace(moved_of(folder, frame(150, 0, 3)), rows_then=np.array([336, 664]), rows_now=np.array([324, 676]))
    shares, _ = moved_tables(moved)
    assert [row[2:] for row in shares.rows] == [["34 %", "32 %", "-2"], ["66 %", "68 %", "+2"]]


def test_what_moved_is_named_and_what_did_not_is_not(folder):
    (columns,) = moved_of(folder, frame(150, 12, 4)).sentences()
    assert columns.startswith("columns have moved: age by +0.")
    assert "crp" not in columns
    said = list(moved_of(folder, frame(150, 0, 5, (0.8, 0.2))).sentences())
    assert said[0].startswith("shares have moved: cluster 0 from ")


def test_few_rows_move_nothing_by_chance(folder):
    said = [next(iter(moved_of(folder, frame(8, 0, seed)).sentences())) for seed in range(20)]
    assert sum(one.startswith("neither") for one in said) >= 19


def test_a_site_that_took_no_part_is_compared_with_all_sites(folder):
    assert moved_of(folder, frame(50, 0, 6), "west").site == ""


def test_the_command_places_new_rows_of_a_site_and_writes_a_page(folder, tmp_path, capsys):
    file = tmp_path / "<next>.csv"
    frame(150, 12, 7).to_csv(file, index=False)
    words = ["assign", str(folder), "--data", str(file), "--site", "north", "--out", str(tmp_path / "placed")]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "for rows that came later say --new-rows" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--new-rows"])
    said = capsys.readouterr().out
    assert "columns have moved: age by +0." in said
    page = (tmp_path / "placed" / "placed.html").read_text()
    assert "<h1>&lt;next&gt;.csv in the clusters of the run</h1>" in page
    assert "Columns have moved: age by +0." in page
    assert "mean then, north" in page


def test_without_profiles_rows_are_called_as_the_run_does_too(tmp_path, capsys):
    sites = {"north": frame(300, 0, 1), "south": frame(200, 0, 2)}
    flareclust.run("portfolio", sites, k=2, profile=False, out=tmp_path / "run", row_name="patients")
    frame(90, 400, 7).to_csv(tmp_path / "next.csv", index=False)
    words = ["--data", str(tmp_path / "next.csv"), "--site", "north", "--out", str(tmp_path / "placed")]
    for more, code in (([], "2"), (["--new-rows"], "0")):
        with pytest.raises(SystemExit, match=code):
            main(["assign", str(tmp_path / "run"), *words, *more])
    out, err = capsys.readouterr()
    assert "for patients that came later say --new-rows" in err
    assert not re.search(r"(?<!-)\brows\b", (out + err).replace(str(tmp_path), ""))
    finished, about = read_finished(tmp_path / "run")
    print_placed(replace(finished, refused={"west": "has fewer rows than k=2"}), 12, row_name_of(about))
    said = capsys.readouterr().out
    assert "12 patients placed at north, south" in said
    assert "west has fewer patients than k=2" in said


def test_the_page_of_placed_rows_calls_them_as_the_run_does(tmp_path, capsys):
    sites = {"north": frame(300, 0, 1), "south": frame(200, 0, 2)}
    flareclust.run("portfolio", sites, k=2, profile=True, out=tmp_path / "run", row_name="patients")
    frame(90, 400, 7).to_csv(tmp_path / "next.csv", index=False)
    words = ["--data", str(tmp_path / "next.csv"), "--site", "north", "--out", str(tmp_path / "placed"), "--new-rows"]
    with pytest.raises(SystemExit, match="0"):
        main(["assign", str(tmp_path / "run"), *words])
    page, said = (tmp_path / "placed" / "placed.html").read_text(), capsys.readouterr().out
    assert "90 patients were placed in the clusters" in page
    assert "patients now" in page
    assert "@page { size: A4" in page
    assert "patients (100.0%) are far from every cluster" in page
    assert not re.search(r"\brows\b", said.replace(str(tmp_path), "") + page.partition("</style>")[2])


def test_a_run_without_profiles_places_rows_and_compares_nothing(tmp_path):
    flareclust.run("portfolio", {"a": frame(90, 0, 1), "b": frame(90, 0, 2)}, k=2, profile=False, out=tmp_path / "run")
    file = tmp_path / "late.csv"
    frame(30, 0, 3).to_csv(file, index=False)
    labels, _, table, *_ = place_file(tmp_path / "run", file, "a", new_rows=True)
    assert len(labels) == 30
    assert moved_in(tmp_path / "run", "a", table, labels)[0] is None


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("profile", [True, False])
def test_rows_far_from_every_cluster_are_named_to_the_site(tmp_path, capsys, with_ids, profile):
    """By their ids, or by their numbers in labels.csv, in which dropped rows are not counted."""
    ids = "patient: {type: id}, " if with_ids else ""
    schema = tmp_path / "schema.yaml"
    schema.write_text(f"missing: drop-rows\ncolumns: {{{ids}age: {{type: number}}, crp: {{type: number}}}}\n")
    (tmp_path / "data").mkdir()
    for i, site in enumerate(("north", "south")):
        rows = frame(200, 0, i).assign(patient=[f"{site}{j}" for j in range(200)])
        rows.to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    run = {"partition": "none", "schema": str(schema), "row_name": "patients", "profile": profile}
    flareclust.run("lloyd", str(tmp_path / "data"), k=2, out=tmp_path / "run", **run)
    words = ["assign", str(tmp_path / "run"), "--data", str(tmp_path / "next.csv"), "--site", "north", "--new-rows"]
    words += ["--schema", str(schema), "--out", str(tmp_path / "placed")]
    for places, verb, named, numbers in [
        ([5], "is", "<p5>", "4"),
        ([5, 7], "are", "<p5>, <p7>", "4, 6"),
        (range(5, 18), "are", "<p5>, <p6>", "4, 5"),
    ]:
        rows = frame(60, 0, 7).assign(patient=[f"<p{j}>" for j in range(60)])
        rows.loc[0, "age"] = np.nan
        rows.loc[list(places), "crp"] = 9999.0
        rows.to_csv(tmp_path / "next.csv", index=False)
        with pytest.raises(SystemExit, match="0"):
            main(words)
        said = capsys.readouterr().out
        (note,) = [line for line in said.splitlines() if "far from every cluster" in line]
        assert f"{len(places)} of 59 patients ({len(places) / 59:.1%}) {verb} far from every cluster: " in note
        which = named if with_ids else numbers
        more = " and 3 more" if len(places) > 10 else ""
        end = "" if with_ids else " in the column row of labels.csv"
        assert which in note
        assert note.endswith(f"{more}{end}" if more else f": {which}{end}")
        assert "1 of 60 patients was left out, since a cell is missing" in said
        assert not re.search(r"(?<!drop-)\brows\b", said.replace(str(tmp_path), ""))
        if profile:
            page = (tmp_path / "placed" / "placed.html").read_text()
            assert f": {which.replace('<', '&lt;').replace('>', '&gt;')}" in page
            assert "may name single patients" in page


def test_an_edited_result_is_named(sites, tmp_path):
    flareclust.run("portfolio", sites, k=2, profile=False, out=tmp_path / "run")
    summary = tmp_path / "run" / "result.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"assessed": "all"}))
    with pytest.raises(UserError, match=r"result\.json has no names and values in assessed; was it edited\?"):
        read_finished(tmp_path / "run")
