"""Labels stay at the site, in a file for its own account, complete or not at all."""

import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust._foundation.errors import Refusal, UserError
from flareclust.data.ids import Ids, as_texts
from flareclust.data.labels import LABELS_FILE, is_labels_file, keep_labels, read_labels, write_labels

TEXTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1), min_size=1)


def ids_of(texts):
    ids = Ids()
    ids.extend(texts)
    return ids


@given(st.lists(st.integers(-1, 2**40), min_size=1))
def test_labels_are_read_back_as_they_were_written(tmp_path_factory, labels):
    folder = tmp_path_factory.getbasetemp()
    write_labels(folder, np.array(labels, dtype=np.int64))
    found = read_labels(folder)
    assert found.dtype == np.int64
    assert found.tolist() == labels


def test_labels_are_a_plain_table_in_the_order_of_the_rows(tmp_path):
    write_labels(tmp_path, np.array([2, 0, 1]))
    assert (tmp_path / LABELS_FILE).read_text() == "row,label\n0,2\n1,0\n2,1\n"


def test_ids_stand_between_the_row_and_its_label(tmp_path):
    write_labels(tmp_path, np.array([2, 0]), ids_of(["p-1", 'Doe, "J"']), "patient")
    assert (tmp_path / LABELS_FILE).read_text() == 'row,patient,label\n0,p-1,2\n1,"Doe, ""J""",0\n'
    assert read_labels(tmp_path).tolist() == [2, 0]


def test_what_an_algorithm_says_of_a_row_stands_before_its_label(tmp_path):
    write_labels(
        tmp_path,
        np.array([2, 0]),
        ids_of(["p", "q"]),
        "patient",
        details={"probability": np.array([0.5, 1]), "log_density": -np.ones(2)},
    )
    lines = (tmp_path / LABELS_FILE).read_text().splitlines()
    assert lines == ["row,patient,probability,log_density,label", "0,p,0.5,-1.0,2", "1,q,1.0,-1.0,0"]
    assert read_labels(tmp_path).tolist() == [2, 0]
    assert is_labels_file(tmp_path / LABELS_FILE)


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("row,id,probability,log_density,outlier,label", True),
        ("row,probability,log_density,outlier,label", True),
        ("row,id,label", True),
        ("row,id,age,label", False),
        ("row,id,age,probability,log_density,outlier,label", False),
        ("row,id,probability,log_density,outlier", False),
    ],
)
def test_a_file_of_ours_is_known_by_its_columns(tmp_path, header, ours):
    (tmp_path / LABELS_FILE).write_text(header + "\n")
    assert is_labels_file(tmp_path / LABELS_FILE) == ours


@given(TEXTS)
def test_whatever_the_ids_are_the_labels_are_read_back(tmp_path_factory, texts):
    folder, labels = tmp_path_factory.getbasetemp(), np.arange(len(texts))
    write_labels(folder, labels, ids_of(texts), "label")
    assert read_labels(folder).tolist() == labels.tolist()


def test_ids_that_do_not_fit_the_labels_leave_no_file(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_labels(tmp_path, np.array([1, 2]), ids_of(["one"]))
    assert not (tmp_path / LABELS_FILE).exists()


def test_an_older_file_stays_whole_until_the_new_one_is(tmp_path, monkeypatch):
    write_labels(tmp_path, np.array([1, 2]))

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_labels(tmp_path, np.array([3, 4]))
    assert read_labels(tmp_path).tolist() == [1, 2]
    monkeypatch.undo()
    write_labels(tmp_path, np.array([3, 4]))  # what was left of the killed one is no obstacle
    assert [path.name for path in tmp_path.iterdir()] == [LABELS_FILE]
    assert read_labels(tmp_path).tolist() == [3, 4]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes of files")
@pytest.mark.parametrize("older", [False, True])
def test_labels_are_for_the_sites_own_account_only(tmp_path, older):
    path = tmp_path / LABELS_FILE
    if older:
        path.write_text("row,label\n" * 50)
        path.chmod(0o644)
    mask = os.umask(0)
    try:
        write_labels(tmp_path, np.array([1, 2]))
        inner = write_labels(tmp_path / "new" / "folder", np.array([1, 2]))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_labels(tmp_path).tolist() == [1, 2]
    assert [stat.S_IMODE(p.stat().st_mode) for p in (inner, inner.parent, inner.parent.parent)] == [0o600, 0o700, 0o700]


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (None, True),
        ("row,label\n0,1\n", True),
        ("row,patient,label\n0,p,1\n", True),
        ("id,truth\n1,2\n", False),
        ("row,a,b,label\n", False),
        ("", False),
    ],
)
def test_only_our_own_labels_are_written_over(tmp_path, text, ours):
    path = tmp_path / "labels.csv"
    if text is not None:
        path.write_text(text)
    assert is_labels_file(path) is ours


def test_a_site_keeps_labels_in_the_jobs_folder_or_by_job_in_its_own(tmp_path):
    job = tmp_path / "6f1c-job"
    assert keep_labels(job, None, np.array([1]), None, None) == job / LABELS_FILE
    kept = keep_labels(job, tmp_path / "labels", np.array([1]), ids_of(["p"]), "patient")
    assert kept == tmp_path / "labels" / "6f1c-job.csv"
    assert kept.read_text() == "row,patient,label\n0,p,1\n"


def test_a_folder_that_cannot_be_written_to_is_a_refusal_without_its_name(tmp_path):
    (tmp_path / "file-of-dr-x").write_text("")
    with pytest.raises(Refusal, match="cannot write its labels") as refused:
        keep_labels(tmp_path / "job", tmp_path / "file-of-dr-x", np.array([1]), None, None)
    assert "dr-x" not in str(refused.value)


# --- ids ---


@given(TEXTS)
def test_ids_come_back_in_order_and_are_not_shown(texts):
    ids = ids_of(texts)
    assert (len(ids), list(ids)) == (len(texts), texts)
    assert ids.repeated() == len(texts) - len(set(texts))
    assert repr(ids).startswith("<flareclust.data.ids.Ids object at")


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (np.array([7, -1]), ["7", "-1"]),
        (np.array([2.0**53 - 1, 1]), ["9007199254740991", "1"]),
        (np.array(["a", " b "]), ["a", "b"]),
        (np.array([b"a"]), ["a"]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
    ],
)
def test_ids_are_text_or_whole_numbers(values, texts):
    assert as_texts(values, "rows.csv", 1) == texts


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.array([1.0, np.nan]), "rows.csv: an id is missing, first in row 12;"),
        (np.array(["73911", "  "]), "an id is missing, first in row 12;"),
        (np.array(["73911", None], dtype=object), "an id is missing, first in row 12;"),
        (np.array([73911.5]), "not whole"),
        (np.array([True]), "neither text nor integers"),
        (np.array([73911], dtype=object), "neither text nor integers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "neither text nor integers"),
        (np.array([b"73911\xff", b"73911\xfe"]), "bytes that are no text"),
    ],
)
def test_ids_that_are_missing_or_something_else_are_refused_without_one(values, reason):
    with pytest.raises(UserError, match=reason) as refused:
        as_texts(values, "rows.csv", 11)
    assert "73911" not in str(refused.value)
