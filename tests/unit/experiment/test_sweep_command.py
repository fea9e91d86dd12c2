"""The command that runs a sweep."""

import json
import logging
import signal

import numpy as np
import pytest

from flareclust._foundation.interrupts import ENDING
from flareclust.cli.entry import _QUIET
from flareclust.cli.main import main
from flareclust.experiment.sweeps import trials as study_trials
from tests.unit.experiment.sweep_cases import EXAMPLE, PAGE


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the command in an empty folder that has a sweep of its own."""
    monkeypatch.chdir(tmp_path)
    for name in _QUIET:
        monkeypatch.setenv(name, "CRITICAL")
    monkeypatch.setattr(logging, "raiseExceptions", True)
    before = {number: signal.getsignal(number) for number in ENDING}
    (tmp_path / "s.toml").write_text(
        'name = "my sweep!"\ndata = "iris"\nn_sites = 3\nseeds = 2\nk = [3, 60]\nalgorithms = ["feca", "central"]\n'
    )

    def call(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["sweep", *args])
        return ended.value.code or 0, *capsys.readouterr()

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_example_of_the_documentation_runs(command, tmp_path):
    (tmp_path / "grid16.toml").write_text(EXAMPLE)
    code, out, err = command("grid16.toml", "--no-track")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:5] == ["algorithm", "partition", "trials", "l2", "ari"]
    assert len(rows) == 1 + 8 + 1
    assert err.splitlines()[-1] == "40 of 40 trials, 0 s left"
    (folder,) = (tmp_path / "flareclust-sweeps").iterdir()
    assert rows[-1] == ["files:", str(folder)]
    assert sorted(path.name for path in folder.iterdir()) == [
        "compare.html",
        "disclosure.json",
        "figure.png",
        "table.csv",
        "table.md",
        "trials.jsonl",
    ]
    assert "These are 40 trials" in PAGE


def test_failed_trials_make_exit_code_1_and_are_explained_once(command, tmp_path):
    code, out, _ = command("s.toml", "--no-track", "--out", "o")
    assert code == 1
    assert "2 of 8 trials failed:" in out
    (line,) = (line for line in out.splitlines() if line.startswith("- "))
    assert line.startswith("- feca/iid/60/s0 and 1 more: round 0: 0 of 3 sites took part")
    assert "fewer rows than k=60" in line
    assert "2 of 8 trials failed:" in (tmp_path / "o" / "table.md").read_text()


def test_json_is_one_object_with_the_means_of_the_file(command, tmp_path):
    code, out, _ = command("s.toml", "--no-track", "--json", "--out", "o", "--workers", "1")
    reported = json.loads(out)
    assert (code, reported["trials"], reported["done"], reported["failed"], reported["resumed"]) == (1, 8, 6, 2, 0)
    lines = [json.loads(line) for line in (tmp_path / "o" / "trials.jsonl").read_text().splitlines()]
    for cell in reported["cells"]:
        finals = [line["final"]["inertia"] for line in lines if line["cell"] == cell["cell"] and line["final"]]
        assert cell["done"] == len(finals)
        if finals:
            assert cell["mean"]["inertia"] == np.mean(finals)
            assert cell["std"]["inertia"] == np.std(finals)
    assert json.loads(command("s.toml", "--no-track", "--json", "--out", "o")[1])["resumed"] == 6
    assert reported["run_id"] is None


def test_an_interrupt_says_how_to_go_on(command, tmp_path, monkeypatch):
    from flareclust.experiment.sweeps import folder

    def interrupt(run, numbers, workers):
        run(0)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "_run_in_threads", interrupt)
        code, out, err = command("s.toml", "--no-track", "--out", "o")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        "error: interrupted; 1 of 8 trials are done and kept, the same command does the others"
    )
    assert json.loads(command("s.toml", "--no-track", "--json", "--out", "o")[1])["resumed"] == 1


def test_an_interrupt_counts_failed_trials_apart(command, monkeypatch):
    from flareclust.experiment.sweeps import folder

    calls = []

    def attempt(trial):
        calls.append(trial)
        return study_trials.TrialRun(
            trial, *((study_trials.TrialResult({}), None) if len(calls) == 1 else (None, "no quorum"))
        )

    def interrupt(run, numbers, workers):
        for number in range(3):
            run(number)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("flareclust.experiment.sweeps.trials.attempt_any", attempt)
    monkeypatch.setattr(folder, "_run_in_threads", interrupt)
    _, _, err = command("s.toml", "--no-track", "--out", "o")
    assert err.splitlines()[-1] == (
        "error: interrupted; 1 of 8 trials are done and kept, 2 failed, the same command does the others"
    )


def test_an_interrupt_that_a_library_turns_into_something_else_is_still_one(command, monkeypatch):
    from flareclust.experiment.sweeps import folder

    def swallow(run, numbers, workers):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("as pydantic does") from None

    monkeypatch.setattr(folder, "_run_in_threads", swallow)
    code, _, err = command("s.toml", "--no-track", "--out", "o")
    assert code == 130
    assert "0 of 8 trials" in err


def test_folders_with_other_things_are_left_alone(command, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.tex").write_text("mine")
    assert command("s.toml", "--no-track", "--out", "o")[::2] == (
        2,
        "error: o holds other files, such as thesis.tex; choose a new folder\n",
    )
    code, _, err = command("s.toml", "--no-track", "--out", "s.toml")
    assert code == 2
    assert "is a file; --out must name a folder" in err
    assert command("s.toml", "--no-track", "--workers", "0")[0] == 2
    assert not (tmp_path / "flareclust-sweeps").exists()
