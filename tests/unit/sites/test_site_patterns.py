"""Patterns: files are joined, their names stay at the site, and labels are not read as rows."""

import glob
from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.data.labels import keep_labels
from tests.unit.sites.site_cases import X, refusal, site


# --- patterns ---
def test_files_are_joined_in_the_order_of_their_names(local):
    for name in ("b.csv", "a.csv", "c.csv"):
        (local / name).write_text(f"x,y\n{ord(name[0])},1\n")
    (local / "d.txt").write_text("no table")
    np.testing.assert_array_equal(site(local, path="*.csv").table().X[:, 0], [97, 98, 99])
    np.testing.assert_array_equal(site(local, path="[ac].csv").table().X[:, 0], [97, 99])
    (local / "2024").mkdir()
    (local / "2024" / "z.csv").write_text("x,y\n5,1\n")
    np.testing.assert_array_equal(site(local, path="**/*.csv").table().X[:, 0], [5, 97, 98, 99])


def test_columns_in_another_order_are_read_by_name(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("y,x\n4,3\n")
    table = site(local, path="?.csv").table()
    assert table.columns == ("x", "y")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(site(local, path="?.csv", columns=["y"]).table().X, [[2], [4]])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("x,z\n3,4\n", "2.csv has other columns than 1.csv; on one side only: 'y', 'z'"),
        ("x\n3\n", "2.csv has other columns than 1.csv; on one side only: 'y'"),
        ("3,4\n5,6\n", "2.csv and 1.csv must both have names of columns, or neither"),
        ("x,y\n3,\n", "2.csv: 1 cell is missing, NaN or infinite, first in row 1, column 'y'"),
        ("x,y\n", "2.csv has no rows below its header"),
        ("", "2.csv is empty"),
    ],
)
def test_the_file_that_differs_is_named(local, other, reason):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text(other)
    assert reason in refusal(site(local, path="?.csv"), owner=True)


def test_arrays_without_names_must_be_as_wide(local):
    np.save(local / "1.npy", X)
    np.save(local / "2.npy", X[:, :1])
    assert "2.npy has 1 columns where 1.npy has 2" in refusal(site(local, path="?.npy"), owner=True)
    np.save(local / "2.npy", X + 1)
    np.testing.assert_array_equal(site(local, path="?.npy").table().X, np.concatenate([X, X + 1]))


def test_with_may_lack_all_files_must_lack_the_same_columns(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("x\n3\n")
    keys = {"path": "?.csv", "columns": ["x", "y", "z"], "agreement": "may-lack"}
    assert "2.csv has other columns than 1.csv; on one side only: 'y'" in refusal(site(local, **keys), owner=True)


def test_exact_agreement_looks_at_every_file(local):
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / "2.csv").write_text("x,y,z\n1,2,3\n")
    keys = {"path": "?.csv", "columns": ["x", "y"], "agreement": "exact"}
    assert "on one side only: z" in refusal(site(local, **keys))
    (local / "2.csv").write_text("y,x\n4,3\n")
    np.testing.assert_array_equal(site(local, **keys).table().X, [[1, 2], [3, 4]])


def test_a_pattern_without_files_and_one_with_a_folder_are_refused(local):
    assert "*.csv: no file matches" in refusal(site(local, path="*.csv"))
    (local / "a.csv").mkdir()
    assert "a.csv is a folder" in refusal(site(local, path="*.csv"), owner=True)


PATIENT = "smith_john_19610403"  # the name of a file, which the operator's pattern does not hold


@pytest.mark.parametrize(
    ("name", "text", "path", "reason"),
    [
        (f"{PATIENT}.csv", "x,y\n1,a\n", "*.csv", "*.csv: column 'y' is not numeric, first in row #"),
        (f"{PATIENT}.csv", "x,z\n3,4\n", "*.csv", "*.csv has other columns than *.csv; on one side only: 'y', 'z'"),
        (f"{PATIENT}.csv", "3,4\n5,6\n", "*.csv", "*.csv and *.csv must both have names of columns"),
        (f"{PATIENT}.csv", "x,y\n3,\n", "*.csv", "*.csv: # cell is missing, NaN or infinite"),
        (f"{PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"{PATIENT}.csv", None, "*.csv", "*.csv is a folder"),
        (f"a b\n{PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"1.csv {PATIENT}.csv", "", "*.csv", "*.csv is empty"),
        (f"a.{PATIENT}", "x,y\n3,4\n", "?.*", "?.*: unknown suffix; a table has one of .npy"),
        (f"{PATIENT}.npz", "damaged", "*.npz", "*.npz is not a NumPy file"),
        (f"{PATIENT}.parquet", "damaged", "*.parquet", "*.parquet is not a parquet file"),
        (f"{PATIENT}/2.csv", "x,y\n3,\n", "**/*.csv", "*.csv: # cell is missing"),
    ],
)
def test_names_of_matched_files_stay_at_the_site(local, caplog, name, text, path, reason):
    """What travels has the pattern in their place; the site's own log and the owner's own texts have them."""
    (local / "1.csv").write_text("x,y\n1,2\n")
    (local / name).parent.mkdir(exist_ok=True)
    if text is None:
        (local / name).mkdir()
    else:
        (local / name).write_text(text)
    data = site(local, path=path)
    travels = refusal(data)
    assert travels.startswith(f"cannot use its rows: {reason}")
    assert "smith" not in travels
    own = name.rpartition("/")[2]
    assert own in caplog.text
    assert own in refusal(data, owner=True)
    assert "\0" not in travels + caplog.text + refusal(data, owner=True)


def test_the_name_of_a_matched_link_stays_at_the_site(local, tmp_path):
    np.save(tmp_path / "others.npy", X)
    (local / f"{PATIENT}.npy").symlink_to(tmp_path / "others.npy")
    assert "smith" in refusal(site(local, path="*.npy"), owner=True)
    assert refusal(site(local, path="*.npy")).startswith("cannot use its rows: *.npy is not under the root")
    (local / f"{PATIENT}.npy").unlink()
    (local / f"{PATIENT}.npy").symlink_to(f"{PATIENT}.npy")
    assert "smith" not in refusal(site(local, path="*.npy"))


def test_with_exact_agreement_the_name_of_a_matched_file_stays_at_the_site(local):
    (local / f"{PATIENT}.csv").write_text("x,y,z\n1,2,\n")
    keys = {"path": "*.csv", "columns": ["x", "y"], "agreement": "exact"}
    assert refusal(site(local, **keys)).startswith("cannot use its rows: *.csv: # cell is missing")


# --- the folder of the labels ---
JOB = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"


@pytest.mark.parametrize(
    ("path", "labels", "refused"),
    [
        ("../data/*.csv", "../data", True),
        ("../data/*", "../data", True),
        ("../data/0?[0-9a-f]*.csv", "../data", True),
        ("../data/[!g-z]*-????-*.c*", "../data", True),
        ("../data/**/*.csv", "../data/labels", True),
        ("../data/**/*.csv", "../data/a/labels", True),
        ("../data/**", "../data/a/labels", True),
        ("../data/*/*.csv", "../data/labels", True),
        ("../dat?/*.csv", "../data", True),
        ("../data/*.csv", "../data/labels", False),
        ("../data/*/*.csv", "../data", False),
        ("../data/**/*.csv", "../data/.labels", False),
        ("../data/visits-*.csv", "../data", False),
        ("../data/[!0-9a-f]*.csv", "../data", False),
        ("../data/????.csv", "../data", False),
        ("../data/*.parquet", "../data", False),
        ("../data/rows.csv", "../data", False),
        ("../data/*.csv", "../labels", False),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_pattern_that_would_read_labels_as_rows_is_refused(local, path, labels, refused, there):
    """Whether or not the folder is there yet; and what is not refused does not match the labels file of a job."""
    (local / "../data").mkdir()
    if there:
        (local / labels).mkdir(parents=True, exist_ok=True)
    if refused:
        with pytest.raises(Refusal, match="path is a pattern that matches the files in its labels folder") as caught:
            site(local, path=path, labels=labels)
        assert "data" not in str(caught.value)
        assert site(local, path=path).labels is None
    else:
        data = site(local, path=path, labels=labels)
    if there:
        kept = keep_labels(local / JOB, local / labels, np.array([1]), None, None)
        found = glob.glob(str(local / path), recursive=True)
        assert refused == (kept.resolve() in [Path(file).resolve() for file in found])
        assert refused or kept.resolve() not in ([] if not found else [file.path for file in data.files()])


def test_a_linked_folder_of_labels_is_recognised(local):
    (local / "data").mkdir()
    (local / "labels").symlink_to("data")
    with pytest.raises(Refusal, match="would read labels as rows"):
        site(local, path="data/*.csv", labels="labels")


def test_a_file_called_like_a_pattern_is_that_file(local):
    np.save(local / "rows[1].npy", X)
    np.save(local / "rows1.npy", X + 1)
    np.testing.assert_array_equal(site(local, path="rows[1].npy").table().X, X)


def test_the_sites_name_stands_in_patterns(local):
    (local / "site-1").mkdir()
    np.save(local / "site-1" / "a.npy", X)
    np.testing.assert_array_equal(site(local, path="{site}/*.npy").table().X, X)


@pytest.mark.parametrize("name", ["*", "site?", "[a]", "..", ".", "", "a/b", "a\\b", "a\0b"])
def test_a_sites_name_chooses_no_other_file(local, name):
    with pytest.raises(Refusal, match="name cannot stand in a path"):
        site(local, name, path="{site}/rows.npy")
    assert site(local, name, path="rows.npy").path == local / "rows.npy"
