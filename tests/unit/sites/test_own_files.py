"""What holds rows, pictures of rows or labels is for its owner only; and no text in a csv file is a formula."""

import csv
import errno
import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import _plain_text, write_atomically
from flareclust.data.ids import Ids
from flareclust.data.labels import LABELS_FILE, is_labels_file, read_labels, write_labels
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.federation import checkpoint
from flareclust.protocol.rounds import Round
from flareclust.sites.kit import write_json
from tests.command_line import call


@pytest.fixture
def open_to_all():
    """A umask under which files are readable and writable for everybody unless they are made otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    found = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))}
    return {name: mode for name, mode in found.items() if mode & 0o077}


def test_the_folder_of_a_run_is_for_its_owner_only_also_where_it_replaces_another(tmp_path, open_to_all):
    out = tmp_path / "runs" / "one"
    for _ in range(2):
        assert (
            call("run", "pooled", "--data", "digits", "--n-sites", "3", "--no-track", "--out", out, "--overwrite") == 0
        )
        assert {"labels.csv", "picture.png", "result.npz", "result.json", "rounds.jsonl"} <= {
            p.name for p in out.iterdir()
        }
        assert modes(tmp_path) == {}
        for path in out.iterdir():
            path.chmod(0o666)


def test_labels_of_a_late_site_are_for_its_owner_only(tmp_path, open_to_all, sites):
    result = flareclust.run("pooled", sites, k=4, out=tmp_path / "out")
    assert result.centroids_file is not None
    np.save(tmp_path / "late.npy", sites["site-1"])
    (tmp_path / "late.npy").chmod(0o600)
    assert call("assign", tmp_path / "out", "--data", tmp_path / "late.npy", "--out", tmp_path / "placed") == 0
    assert (tmp_path / "placed" / LABELS_FILE).exists()
    assert modes(tmp_path) == {}


@pytest.mark.slow
def test_the_mlflow_store_and_the_artifacts_of_a_run_are_for_their_owner_only(
    tmp_path, open_to_all, sites, monkeypatch
):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    store = tmp_path / "store" / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    flareclust.run("pooled", sites, k=4, out=tmp_path / "out", track=True)
    pictures = list(store.parent.rglob("picture.png"))
    assert pictures
    shown = modes(tmp_path)
    assert not {name for name in shown if name.endswith((".db", "picture.png", "labels.csv", "mlruns"))}, shown
    assert stat.S_IMODE((store.parent / "mlruns").stat().st_mode) == 0o700


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\tx", "\r=x", "'=1", "''-x", '=HYPERLINK("http://x")']
NUMBERS = ["-5", "+5", "5", "-5.25", "1e5", "-1E-5", "-.5"]
TEXTS = ["P1071", "a-b", "a=b", "", "'quoted'", "x@y", "O'Neil"]


def back(text: str) -> str:
    """Return what was written, by the rule that the docs state."""
    return text[1:] if re.match(r"''*[=+\-@\t\r]", text) else text


def test_formulas_become_text_and_all_else_stays_and_every_text_comes_back():
    for text in FORMULAS:
        assert _plain_text(text) == f"'{text}"
    for text in [*NUMBERS, *TEXTS]:
        assert _plain_text(text) == text
    texts = [*FORMULAS, *NUMBERS, *TEXTS]
    assert [back(_plain_text(text)) for text in texts] == texts


def test_ids_and_their_heading_are_no_formulas_and_labels_are_read_as_before(tmp_path):
    ids = Ids()
    texts = [*FORMULAS, *NUMBERS]
    ids.extend(texts)
    labels = np.arange(len(texts)) - 1
    file = write_labels(tmp_path, labels, ids, "=cmd()")
    with file.open(encoding="utf-8", newline="") as stream:
        head, *lines = csv.reader(stream)
    assert head == ["row", "'=cmd()", "label"]
    assert all(line[1][0] not in "=@\t\r" for line in lines)
    assert [back(line[1]) for line in lines] == texts
    assert [line[2] for line in lines] == list(map(str, labels)), "-1 stays a number"
    assert read_labels(tmp_path).tolist() == labels.tolist()
    assert is_labels_file(file)


def test_tables_of_sweeps_have_no_formulas():
    cell = study_trials.Cell({"data": "=x", "n_sites": "-3"}, {"l2": -1.5}, {"l2": 0.0}, 1, 0)
    text = StudySummary((), [cell]).comma_separated()
    assert "'=x,-3,1,0,-1.5,0.0" in text.splitlines()[1]


@pytest.mark.skipif(sys.platform == "win32", reason="modes are of POSIX")
def test_an_older_file_of_that_name_does_not_lend_its_mode(tmp_path, open_to_all):
    (tmp_path / f"{LABELS_FILE}.part").touch(0o666)
    assert stat.S_IMODE(write_labels(tmp_path, np.zeros(2, np.int64)).stat().st_mode) == 0o600


@pytest.mark.parametrize("shared", [True, False])
def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch, shared):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "resources.json"
    file.write_text("{}")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"), write_atomically(file, shared=shared) as out:
        out.write("half of it")
    with pytest.raises(UserError, match=r"resources\.json cannot be written: No space left on device"):
        write_json(file, {"more": 1})
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(tmp_path / "job.npz", checkpoint.Checkpoint(Round(), checkpoint.Progress([], [])), {})
    assert [path.name for path in tmp_path.iterdir()] == ["resources.json"]
    assert file.read_text() == "{}"


def test_a_file_has_the_mode_that_it_is_given_whatever_the_umask(tmp_path, open_to_all):
    for mode, expected in ((0o600, 0o600), (0o644, 0o644), (None, 0o666)):
        with write_atomically(tmp_path / "a", mode=mode) as out:
            out.write("b")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == expected
