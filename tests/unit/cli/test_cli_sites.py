"""The command line with files of sites, from the start and later."""

import json

import numpy as np
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
