"""Running the trials of a sweep, going on after an interrupt, and failed trials."""

import json
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.sweeps import folder
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.flows.study import StudyRunner
from tests.unit.experiment.sweep_cases import sweep, trial


class Counting:
    """A measure that counts its calls; it fails as long as `broken` says so."""

    def __init__(self, value: float = 1.0, broken: Exception | None = None) -> None:
        self.value, self.broken, self.calls = value, broken, 0

    def __call__(self) -> study_trials.TrialResult:
        self.calls += 1
        if self.broken is not None:
            raise self.broken
        rounds = [{"round": 0.0, "moved": self.value / 3}, {"round": 1.0, "moved": 1e-17}]
        return study_trials.TrialResult({"l2": self.value, "ari": None}, {"seconds": 0.1}, rounds)


def test_finished_trials_are_not_run_again_and_are_the_same_to_the_last_bit(tmp_path):
    measures = [Counting(1 / (i + 3)) for i in range(5)]
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate(measures)]
    seen = []
    first = StudyRunner("s", file=tmp_path / "t.jsonl", track=False, on_done=seen.append)(todo[:3])
    again = StudyRunner("s", file=tmp_path / "t.jsonl", track=False, on_done=seen.append)(todo)
    assert [measure.calls for measure in measures] == [1, 1, 1, 1, 1]
    assert [one.measured for one in again[:3]] == [one.measured for one in first]
    assert [one.resumed for one in again] == [True] * 3 + [False] * 2
    assert [one.trial.seed for one in again] == [0, 1, 2, 3, 4]
    assert len(seen) == 8
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(line["seed"], line["final"]["l2"]) for line in lines] == [(i, 1 / (i + 3)) for i in range(5)]
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_failed_trials_are_answered_counted_and_run_again(tmp_path):
    good, foreseen, bug = Counting(), Counting(broken=JobFailed("no quorum")), Counting(broken=KeyError("oops"))
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate((foreseen, good, bug))]
    run = StudyRunner("s", file=tmp_path / "t.jsonl", track=False, workers=1)
    assert [one.error for one in run(todo)] == ["no quorum", None, "unexpected KeyError: 'oops'"]
    foreseen.broken = bug.broken = None
    assert [one.error for one in run(todo)] == [None] * 3
    assert (foreseen.calls, good.calls, bug.calls) == (2, 1, 2)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 3


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    measures = [Counting() for _ in range(3)]
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate(measures)]
    run = StudyRunner("s", file=tmp_path / "t.jsonl", track=False)
    run(todo)
    text = (tmp_path / "t.jsonl").read_text()
    (tmp_path / "t.jsonl").write_text(text[:-20])
    run(todo)
    assert [measure.calls for measure in measures] == [1, 1, 2]
    assert [json.loads(line)["seed"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [0, 1, 2]


@pytest.fixture
def ctrl_c_raises():
    """Python's own answer to Ctrl-C, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interrupt_lets_running_trials_end_and_starts_no_other(tmp_path, monkeypatch):
    cancelled = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(folder, "ThreadPoolExecutor", Pool)

    def interrupted() -> study_trials.TrialResult:
        ended = False
        while not ended:  # a signal just before the main thread starts to wait is only seen with the next one
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            ended = cancelled.wait(5)
        return study_trials.TrialResult({"l2": 2.0})

    last = Counting()
    todo = [trial(seed=0), trial(seed=1, measure=interrupted), *(trial(seed=i, measure=last) for i in (2, 3))]
    run = StudyRunner("s", file=tmp_path / "t.jsonl", track=False, workers=1)
    with pytest.raises(KeyboardInterrupt):
        run(todo)
    assert last.calls == 0
    assert [json.loads(line)["seed"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [0, 1]
    assert [one.resumed for one in run(todo)] == [True, True, False, False]


def test_the_trials_of_another_study_are_never_mixed_in(tmp_path):
    run = StudyRunner("s", file=tmp_path / "t.jsonl", track=False)
    run([trial(rounds=3)])
    with pytest.raises(UserError, match="holds trials of another study, or with other settings"):
        run([trial(rounds=4)])
    with pytest.raises(UserError, match="holds trials of another study"):
        StudyRunner("other", file=tmp_path / "t.jsonl", track=False)([trial(rounds=3)])
    with pytest.raises(UserError, match="two trials of 's' are the same: a/iid/s0 and a/iid/s0"):
        run([trial(rounds=3), trial(rounds=3)])
    (tmp_path / "t.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match="is not a file of trials"):
        run([trial(rounds=3)])


def test_numbers_that_are_not_finite_are_stored_as_none_or_left_out():
    done = study_trials.attempt_any(
        trial(
            measure=lambda: study_trials.TrialResult(
                {"a": math.nan, "b": math.inf, "c": 1}, {"x": math.nan}, [{"round": 0}]
            )
        )
    )
    assert done.measured == study_trials.TrialResult({"a": None, "b": None, "c": 1.0}, {}, [{"round": 0.0}])


def test_more_workers_come_to_the_same(tmp_path):
    todo = sweep_settings.trials(
        sweep(algorithms=["kfed", "feca", "central"], partitions=["iid", "dirichlet:0.5"], seeds=3)
    )
    alone = StudyRunner("s", file=tmp_path / "1.jsonl", track=False, workers=1)(todo)
    beside = StudyRunner("s", file=tmp_path / "4.jsonl", track=False, workers=4)(todo)
    assert [one.measured.final for one in alone] == [one.measured.final for one in beside]


# --- the command ---


def test_cells_of_the_table_are_those_of_the_trials():
    done = [
        study_trials.attempt_any(trial(name, seed, measure=Counting(seed + 1.0))) for name in "ab" for seed in (0, 1)
    ]
    assert [(cell.cell["algorithm"], cell.mean["l2"], cell.std["l2"]) for cell in study_trials.by_cell(done)] == [
        ("a", 1.5, 0.5),
        ("b", 1.5, 0.5),
    ]
