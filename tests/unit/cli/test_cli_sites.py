"""The command line with files of sites, from the start and later."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.data.labels import read_labels
from tests.unit.cli.cli_cases import FAST, rows, write


def nearest(X, centroids):
    return ((X[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


# --- columns ---


def test_files_of_sites_are_read_by_name(command, tmp_path):
    """One hospital has its columns in another order: the result is as if it had not."""
    for i in range(3):
        write(tmp_path / "same" / f"h{i}.csv", rows(i), "age,crp")
        write(tmp_path / "mixed" / f"h{i}.csv", rows(i), "age,crp")
    write(tmp_path / "mixed" / "h2.csv", rows(2)[:, ::-1], "crp,age")
    other = np.c_[rows(2)[:, 1], np.arange(len(rows(2))), rows(2)[:, 0]]
    common = ("run", "feca", "--partition", "none", "--k", "3", *FAST)
    assert json.loads(command(*common, "--data", "mixed", "--out", "m").out)["warnings"] == []
    command(*common, "--data", "same", "--out", "s")
    command(*common, "--data", "mixed", "--out", "r", "--columns", "crp, age")
    m, s, r = (np.load(tmp_path / out / "result.npz")["centroids"] for out in "msr")
    np.testing.assert_array_equal(m, s)
    assert np.abs(np.sort(r[:, ::-1], axis=0) - np.sort(s, axis=0)).max() < 1.0
    assert json.loads((tmp_path / "m" / "result.json").read_text())["columns"] == ["age", "crp"]

    write(tmp_path / "late.csv", other, "crp,patient,age")
    assert command("assign", "m", "--data", "late.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(rows(2), m))
    (tmp_path / "text.csv").write_text("sex,age,crp\n" + "".join(f"f,{x},{y}\n" for x, y in rows(2).tolist()))
    assert command("assign", "m", "--data", "text.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(rows(2), m))
    write(tmp_path / "iris.csv", rows(2), "petal,sepal")
    wrong = command("assign", "m", "--data", "iris.csv", "--out", "labels")
    assert (wrong.code, "'age'" in wrong.err) == (2, True)


def test_columns_of_one_file_are_chosen_by_name(command, tmp_path):
    write(tmp_path / "all.csv", np.c_[rows(), np.arange(len(rows()))], "age,crp,patient")
    done = command(
        "run", "feca", "--data", "all.csv", "--columns", "age,crp", "--k", "3", "--n-sites", "2", *FAST, "--out", "res"
    )
    assert done.code == 0
    assert np.load(tmp_path / "res/result.npz")["centroids"].shape[1] == 2
    wrong = command("run", "feca", "--data", "all.csv", "--columns", "age,crop", "--k", "3", *FAST, "--out", "x")
    assert (wrong.code, "did you mean 'crp'" in wrong.err) == (2, True)


# --- late sites ---


def test_a_late_site_of_feca_gets_the_labels_of_predict(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    late = rows(7)[::-1]
    write(tmp_path / "late.csv", late)
    command("run", "feca", "--data", "all.csv", "--k", "3", "--n-sites", "2", *FAST, "--out", "res")
    done = command("assign", "res", "--data", "late.csv", "--out", "labels")
    assert done.code == 0
    assert "labels/labels.csv" in done.out
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    found = read_labels(tmp_path / "labels")
    np.testing.assert_array_equal(found, nearest(late, centroids))
    result = flareclust.run("feca", data=tmp_path / "all.csv", k=3, n_sites=2)
    np.testing.assert_array_equal(found, result.predict(late))


@pytest.mark.parametrize(("labels_by", "expected"), [("induced", [0] * 9 + [0]), ("nearest", [0] * 9 + [1])])
def test_a_late_site_of_kfed_gets_induced_labels(command, tmp_path, labels_by, expected):
    """One local cluster around 0, 0 holds one row that lies nearer to the other site's cluster at 100, 0."""
    square = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    write(tmp_path / "two" / "a.csv", square)
    write(tmp_path / "two" / "b.csv", square + np.array([100.0, 0.0]))
    late = np.concatenate([np.zeros((9, 2)), [[60.0, 0.0]]])
    write(tmp_path / "late.csv", late)
    settings = ("--set", "k_local=1", "--set", f"labels_by={labels_by}")
    command("run", "kfed", "--data", "two", "--partition", "none", "--k", "2", *settings, *FAST, "--out", "res")
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    np.testing.assert_allclose(centroids, [[0.0, 0.0], [100.0, 0.0]])
    assert command("assign", "res", "--data", "late.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), expected)


def test_a_late_site_of_a_mixture_gets_components_and_probabilities(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    late = rows(7)
    write(tmp_path / "late.csv", late)
    command("run", "gmm", "--data", "all.csv", "--k", "3", "--n-sites", "2", *FAST, "--out", "res")
    assert command("assign", "res", "--data", "late.csv", "--out", "labels").code == 0
    result = flareclust.run("gmm", data=tmp_path / "all.csv", k=3, n_sites=2)
    placed = result.placements(late)
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), placed["cluster"])
    written = pd.read_csv(tmp_path / "labels" / "labels.csv")
    np.testing.assert_allclose(written[["probability", "log_density"]], placed[["probability", "log_density"]])


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_late_site_of_a_mixture_learns_which_rows_are_outliers(command, tmp_path, scale):
    write(tmp_path / "all.csv", rows())
    late = np.concatenate([rows(7), [[1e3, 1e3], [-1e3, 1e3]]])
    write(tmp_path / "late.csv", late)
    run = ("--k", "3", "--n-sites", "2", "--set", f"scale={scale}")
    command("run", "gmm", "--data", "all.csv", *run, *FAST, "--out", "res")
    asked = ("assign", "res", "--data", "late.csv", "--out", "labels", "--outliers", "0.1")
    done, result = command(*asked), flareclust.run("gmm", data=tmp_path / "all.csv", k=3, n_sites=2, scale=scale)
    expected = result.placements(late, outliers=0.1)["outlier"]
    assert expected[-2:].all()
    assert not expected.all()
    assert (
        f"outliers: {expected.sum()} of {len(late)} rows, {len(late) / 10:.1f} expected; labels.csv names them"
        in " ".join(done.out.split())
    )
    written = pd.read_csv(tmp_path / "labels" / "labels.csv")
    assert written.columns.tolist() == ["row", "probability", "log_density", "outlier", "label"]
    np.testing.assert_array_equal(written["outlier"], expected)
    np.testing.assert_array_equal(written["label"], result.predict(late))
    assert command(*asked).code == 0, "a file with outliers is one of ours"


def test_outliers_of_other_results_and_of_sites_elsewhere_are_refused(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    command("run", "lloyd", "--data", "all.csv", "--k", "3", "--n-sites", "2", *FAST, "--out", "res")
    of_means = command("assign", "res", "--data", "all.csv", "--out", "labels", "--outliers", "0.1")
    assert (of_means.code, "of a Gaussian mixture" in of_means.err) == (2, True)
    assert not (tmp_path / "labels").exists()
    elsewhere = command("assign", "res", "--kit", "kit", "--outliers", "0.1")
    assert (elsewhere.code, "leave them out" in " ".join(elsewhere.err.split())) == (2, True)


def test_a_late_site_chooses_columns_by_name(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    command("run", "feca", "--data", "all.csv", "--k", "3", "--n-sites", "2", *FAST, "--out", "res")
    late = rows(7)
    table = "\n".join(["id,b,a", *(f"{i},{y},{x}" for i, (x, y) in enumerate(late.tolist()))])
    (tmp_path / "late.csv").write_text(table)
    assert command("assign", "res", "--data", "late.csv", "--columns", "a, b", "--out", "labels").code == 0
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(late, centroids))


def test_assign_refuses_what_would_mislead_or_destroy(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    command("run", "kfed", "--data", "all.csv", "--k", "3", "--n-sites", "3", *FAST, "--out", "res")
    late = ("assign", "res", "--data", "all.csv")
    took_part = command(*late, "--site", "site-1", "--out", "labels")
    assert (took_part.code, "site-1 took part" in took_part.err) == (2, True)
    (tmp_path / "labels.csv").write_text("id,truth\n1,2\n")
    overwrite = command(*late)
    assert (overwrite.code, "none of ours" in overwrite.err) == (2, True)
    assert (tmp_path / "labels.csv").read_text() == "id,truth\n1,2\n"


def test_why_fewer_centroids_were_found_is_said(command, tmp_path):
    """Three sites of five rows cannot support eight clusters each, and no cluster has three rows at a site."""
    square = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [0.0, 9.0]])
    for i, site in enumerate(("a", "b", "c")):
        write(tmp_path / "small" / f"{site}.csv", square + np.array([50.0 * i, 0.0]))
    run = ("run", "lloyd", "--data", "small", "--partition", "none", "--k", "8", *FAST[:-1])
    done = command(*run)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "were asked for: a, b, c have fewer rows than k" in text
    assert "too few rows at every site" not in text


def test_a_table_with_text_is_sent_to_a_schema(command, tmp_path):
    for site in ("a", "b"):
        (tmp_path / "text").mkdir(exist_ok=True)
        (tmp_path / "text" / f"{site}.csv").write_text("age,sex\n" + "\n".join(f"{i},{'fm'[i % 2]}" for i in range(9)))
    run = ("run", "lloyd", "--k", "2", *FAST)
    said = command(*run, "--data", "text/a.csv").err
    assert "read text and dates by a schema (--schema, schema=; flareclust schema draft" in said
    assert "schema draft" in command(*run, "--data", "text", "--partition", "none").err
    assert "say --partition none (partition=)" in command(*run, "--data", "text").err
    assert "--partition none" in command(*run, "--data", "gone", "--partition", "none").err


SCHEMA = "missing: drop-rows\ncolumns: {id: id, a: number, b: number, sex: {type: category, values: [f, m]}}"


def test_a_late_table_is_read_by_the_schema_of_the_run(command, tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    lines = [f"p{i},{x},{y},{'fm'[i % 2]}" for i, (x, y) in enumerate(rows().tolist())]
    (tmp_path / "all.csv").write_text("\n".join(["id,a,b,sex", *lines]))
    run = ("run", "feca", "--data", "all.csv", "--k", "3", "--n-sites", "2", "--schema", "s.yaml", *FAST)
    assert command(*run, "--out", "res").code == 0
    # The late file has other names, words and an unknown cell.
    late = [f"q{i};{'' if i == 2 else x};{y};{'wm'[i % 2]}" for i, (x, y) in enumerate(rows(7).tolist())]
    (tmp_path / "late.csv").write_text("\n".join(["id;a;B;sex", *late]))
    (tmp_path / "late.mapping.yaml").write_text("columns: {b: B, sex: {values: {w: f}}}")
    done = command("assign", "res", "--data", "late.csv", "--schema", "s.yaml", "--out", "labels")
    assert done.code == 0, done.err
    assert f"1 of {len(late)} rows was left out, since a cell is missing" in done.out
    assert str(tmp_path / "labels" / "labels.csv") in "".join(done.out.split())
    kept = [i for i in range(len(late)) if i != 2]
    sexes = np.array([[i % 2 == 0, i % 2 == 1] for i in kept], dtype=float)
    expected = flareclust.load_result(tmp_path / "res").predict(np.column_stack([rows(7)[kept], sexes]))
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), expected)
    with (tmp_path / "labels" / "labels.csv").open() as file:
        assert [line["id"] for line in csv.DictReader(file)] == [f"q{i}" for i in kept]
    without = command("assign", "res", "--data", "late.csv", "--out", "other")
    assert without.code == 2
    assert f"--schema {tmp_path / 's.yaml'}" in without.err
    (tmp_path / "other.yaml").write_text(SCHEMA.replace("a: number, b: number", "b: number, a: number"))
    swapped = command("assign", "res", "--data", "late.csv", "--schema", "other.yaml", "--out", "other")
    assert (swapped.code, "they differ in their order" in swapped.err) == (2, True)
    (tmp_path / "units.yaml").write_text(SCHEMA.replace("a: number", "a: {type: number, unit: mm}"))
    units = command("assign", "res", "--data", "late.csv", "--schema", "units.yaml", "--out", "other")
    assert (units.code, "units.yaml is not the schema of the run" in units.err) == (2, True)
    both = command("assign", "res", "--data", "late.csv", "--schema", "s.yaml", "--columns", "a", "--out", "other")
    assert (both.code, "leave out --kit and --columns" in both.err) == (2, True)
