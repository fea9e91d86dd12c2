"""The command that re-runs papers, and its tracking."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks import papers
from benchmarks.papers import running
from benchmarks.papers.__main__ import main
from benchmarks.papers.base import Entry, Study
from benchmarks.papers.running import run_papers, study_name
from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import _EXTRAS, installed
from flareclust._foundation.interrupts import ENDING
from tests.benchmarks.papers_cases import toy_entry
from tests.paths import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


# ---- running many ----


def test_an_entry_that_cannot_be_run_does_not_end_the_others(tmp_path):
    def refuse(study):
        raise UserError("data set s1 cannot be fetched")

    broken = Entry("toy-table9", (), "broken", refuse)
    said = []
    ran = run_papers([broken, toy_entry()], Study(seeds=2), tmp_path, say=said.append)
    assert [one.error for one in ran] == ["data set s1 cannot be fetched", None]
    assert ran[1].report.lines[0].ours == "1.5 ± 0.5"
    assert (tmp_path / "toy-table1" / "report.json").exists()
    assert said[0] == "toy-table9 (1 of 2): broken"
    with pytest.raises(UserError, match="cannot be fetched"):
        run_papers([broken], Study(seeds=2), tmp_path, say=said.append)


def test_what_was_done_is_not_done_again_until_the_code_changes(tmp_path, monkeypatch):
    calls = []
    for _ in range(2):
        ran = run_papers([toy_entry(calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
        assert ran[0].report.lines[0].ours == "1.5 ± 0.5"
    assert sorted(calls) == [("a", 0), ("a", 1)]
    monkeypatch.setattr(running, "code_digest", lambda: "other code")
    run_papers([toy_entry(calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
    assert len(calls) == 4
    assert len(list((tmp_path / "toy-table1").glob("trials-*.jsonl"))) == 1


def test_failed_trials_are_run_again(tmp_path):
    calls = []
    for fail in ((1,), ()):
        ran = run_papers([toy_entry(fail=fail, calls=calls)], Study(seeds=2), tmp_path, say=lambda text: None)
    assert sorted(calls) == [("a", 0), ("a", 1), ("a", 1)]
    assert ran[0].report.failed == 0


def test_a_studys_name_says_what_decides_its_results(tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    studies = [Study(2), Study(3), Study(2, quick=True), Study(2, features=one), Study(2, features=two)]
    names = [study_name(toy_entry(), study) for study in studies]
    assert len(set(names)) == 5
    assert names[0] == study_name(toy_entry(), Study(2))
    assert re.fullmatch(r"toy-table1, 2 seeds, code [0-9a-f]{8}", names[0])


# ---- the command ----


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in ENDING}

    def call(*args):
        with pytest.raises(SystemExit) as ended:
            main([*args])
        return ended.value.code or 0, *capsys.readouterr()

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def toys(monkeypatch):
    entries = [toy_entry(), toy_entry("toy-table2", (), fail=(0,))]
    monkeypatch.setattr(papers, "find", lambda name: entries if name == "all" else entries[:1])


def test_the_command_prints_one_object_and_writes_all_files(command, toys, tmp_path):
    code, out, err = command("toy", "--no-track", "--quick", "--json", "--out", "out", "--page", "page.md")
    assert code == 0, err
    printed = json.loads(out)
    (made,) = printed["reports"]
    assert (made["name"], made["seeds"], made["folder"], made["failed"]) == ("toy-table1", 2, "out/toy-table1", 0)
    assert printed["page"] == "page.md"
    assert "$ python -m benchmarks.papers toy --quick\n" in (tmp_path / "page.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "out", "page.md"]


def test_failed_runs_make_the_command_fail_after_all_is_written(command, toys, tmp_path):
    code, out, err = command("all", "--no-track", "--seeds", "3", "--out", "out")
    assert code == 1
    assert err.splitlines()[-1] == "error: 1 runs failed; the reports say why"
    assert re.search(r"toy-table1 +1 +1 +0 +0 +0 ", out)
    assert "--seeds 3" in json.loads((tmp_path / "out/toy-table2/report.json").read_text())["command"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["feca-tabel1"], "did you mean 'feca-table1'?"),
        (["feca-table5", "--features", "x.npz"], "--features is for feca-table2"),
        (["feca-table2", "--features", "x.npz"], "there is no file x.npz"),
        (["feca-table5", "--page", "."], "is a folder; --page must name a file"),
    ],
)
def test_wrong_requests_end_with_one_line(command, args, words, tmp_path):
    code, out, err = command(*args)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_entries_whose_packages_are_missing_are_left_out_or_refused_before_the_work(command, monkeypatch, tmp_path):
    calls = []
    entries = [toy_entry(calls=calls), replace(toy_entry("toy-table2", ()), extra="deep")]
    monkeypatch.setattr(papers, "find", lambda name: [one for one in entries if name in ("all", one.name)])
    monkeypatch.setitem(_EXTRAS, "deep", ("no_such_package",))
    needs = "toy-table2 needs no_such_package; install the extra: python -m pip install 'flareclust[deep]'"
    for names in (["toy-table2"], ["toy-table1", "toy-table2"]):
        code, out, err = command(*names, "--no-track", "--quick", "--out", "out")
        assert (code, out, err) == (2, "", f"error: {needs}\n")
    assert calls == []
    code, out, err = command("all", "--no-track", "--quick", "--json", "--out", "out")
    assert code == 0, err
    assert err.splitlines()[0] == "left out, because flareclust[deep] is not installed: toy-table2"
    assert [made["name"] for made in json.loads(out)["reports"]] == ["toy-table1"]


def test_the_entries_that_train_networks_say_that_they_need_the_extra():
    found = {entry.name for entry in papers.ENTRIES if entry.extra == "deep"}
    assert found == {"feca-table3", "feca-ablation", "kfed-personal", "kfed-figure4"}


# ---- slow: everything ----


def test_a_tracked_entry_is_an_mlflow_parent_with_its_trials_and_its_report(shared_data, tmp_path):
    command = [sys.executable, "-m", "benchmarks.papers", "feca-table5", "--quick", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reports"][0]["failed"] == 0
    from flareclust.tracking.store import connect

    client = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("flareclust-papers")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) == 1 + 2 * 2
    assert parent.data.metrics["trials/done"] == 4
    files = [item.path for item in client.list_artifacts(parent.info.run_id, "report")]
    assert sorted(files) == ["report/figure.png", "report/report.json", "report/table.md"]


@pytest.mark.nightly
def test_a_store_that_fails_costs_no_trial_and_the_same_command_logs_what_is_missing(tmp_path, monkeypatch):
    from prefect.testing.utilities import prefect_test_harness

    from benchmarks.papers.flow import LATER, Tracked
    from flareclust.tracking.runs import Tracker
    from flareclust.tracking.sweep_runs import SweepTracker

    def fails(*args):
        raise OSError("the disk is full")

    uri = f"sqlite:///{tmp_path}/runs.db"
    said, calls = [], []

    def run():
        tracked = Tracked(uri)
        entry = toy_entry(calls=calls)
        return run_papers(
            [entry], Study(seeds=2), tmp_path / "out", tracked.start, on_saved=tracked.on_saved, say=said.append
        )

    with prefect_test_harness(server_startup_timeout=int(PATIENCE)):
        with monkeypatch.context() as patch:
            patch.setattr(SweepTracker, "_end", fails)
            (ran,) = run()
        assert (ran.report.failed, ran.report.lines[0].ours) == (0, "1.5 ± 0.5")
        (warning,) = [text for text in said if "warning" in text]
        assert (
            f"(all are in {tmp_path}/out/toy-table1) are not in MLflow: the MLflow store failed: the disk is full"
            in warning
        )
        assert warning.endswith(f"log them later with: {LATER}")
        run()
    assert len(calls) == 2
    assert len([text for text in said if "warning" in text]) == 1
    client = Tracker(uri, "flareclust-papers")._client
    experiment = client.get_experiment_by_name("flareclust-papers")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 3
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert len(client.list_artifacts(parent.info.run_id, "report")) == 3


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_the_quick_form_of_everything_runs(shared_data, tmp_path):
    command = [sys.executable, "-m", "benchmarks.papers", "all", "--quick", "--no-track", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--page", "page.md"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    here = [entry for entry in papers.ENTRIES if entry.extra is None or installed(entry.extra)]
    assert [made["name"] for made in printed["reports"]] == [entry.name for entry in here]
    assert all(made["lines"] for made in printed["reports"])
    pictures = list((tmp_path / "images" / "reproduction").glob("*.png"))
    assert len(pictures) == len(here)
    assert max(picture.stat().st_size for picture in pictures) < 120_000
