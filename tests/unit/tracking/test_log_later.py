"""Results and sweeps that are logged from their folders: the same as their own runs would have logged, once."""

import json

import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.results.saved import read_result
from flareclust.experiment.sweeps import folder as study_files
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.flows.study import StudyRunner
from flareclust.tracking import run_logging
from flareclust.tracking.runs import ERROR_TAG, Tracker
from flareclust.tracking.store import NoAnswer, store_errors
from flareclust.tracking.sweep_runs import SweepTracker
from tests.command_line import call


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores for the file: making one takes seconds."""
    uris = [f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db" for _ in range(2)]
    for uri in uris:
        Tracker(uri)
    return uris


@pytest.fixture
def store(stores, monkeypatch, tmp_path):
    """The store that runs are tracked to; the working folder is empty."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stores[0])
    monkeypatch.chdir(tmp_path)
    return stores[0]


@pytest.fixture
def other(stores):
    """A store that knows nothing of the runs."""
    return stores[1]


def contents(uri, run_id):
    """Return what a run holds, but for what says when it was logged and under which id."""
    client = Tracker(uri)._client
    run = client.get_run(run_id)
    histories = {
        name: [(one.step, one.value) for one in client.get_metric_history(run_id, name)] for name in run.data.metrics
    }
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
    files = sorted(item.path for item in client.list_artifacts(run_id))
    models = [] if run.outputs is None else run.outputs.model_outputs
    return run.info.status, run.info.run_name, run.data.params, histories, tags, files, len(models)


def full_disk(*args, **more):
    raise OSError("the disk is full")


def run_tracked(**more):
    return flareclust.run(
        "lloyd", data="iris", n_sites=3, rounds=3, seed=1, track=True, out="out", partition="dirichlet:1", **more
    )


def test_a_folder_is_logged_as_its_run_was(store, other, tmp_path, capsys):
    result = run_tracked()
    assert (run_logging._log_result(tmp_path / "out").run_id, run_logging._log_result(tmp_path / "out").known) == (
        result.run_id,
        True,
    )
    first, again = run_logging._log_result(tmp_path / "out", other), run_logging._log_result(tmp_path / "out", other)
    assert (first.known, again.known, first.run_id) == (False, True, again.run_id)
    expected = contents(store, result.run_id)
    assert contents(other, first.run_id) == expected
    assert {"round/pooled_inertia", "final/ari", "cost/bytes_up"} <= set(expected[3])
    assert len(expected[3]["round/pooled_inertia"]) == result.rounds
    assert call("log", "out", "--uri", other) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"out is already in MLflow as run {first.run_id}"


def test_comparing_and_scaling_columns_are_no_rounds_of_a_run(store):
    settings = {"scale": "robust", "compare": "names"}
    plain, more = (run_tracked(tol=0.0, **given) for given in ({}, settings))
    assert more.rounds == plain.rounds == 4
    first, *_ = [record for record in more.outcome.rounds if record["step"] == "cluster"]
    histories = contents(store, more.run_id)[3]
    assert [step for step, _ in histories["round/bytes_up"]] == [0, 1, 2, 3]
    assert histories["round/bytes_up"][0] == (0, first["bytes_up"])


@pytest.mark.parametrize("settings", [{"k": "2..3"}, {"min_sites": 2, "columns": None}])
def test_a_folder_of_a_run_that_was_not_tracked_is_logged_too(store, tmp_path, settings):
    result = flareclust.run("feca", data="iris", n_sites=3, out="plain", **settings)
    logged = run_logging._log_result(tmp_path / "plain")
    assert (logged.known, run_logging._log_result(tmp_path / "plain").known) == (False, True)
    run = Tracker(store)._client.get_run(logged.run_id)
    assert run.data.params["k"] == str(result.k)
    assert run.data.params.get("k_range") == settings.get("k")
    assert run.data.metrics["final/inertia"] == result.metrics["inertia"]


@pytest.mark.parametrize(
    ("method", "missing"),
    [
        ("log", "missing are the rounds, the model, the model's version in m"),
        ("log_model", "missing are the model, the model's version in m"),
        ("finish", "its run was not closed"),
    ],
)
def test_a_store_that_fails_costs_a_warning_and_the_rest_is_logged_later(
    store, other, tmp_path, monkeypatch, method, missing
):
    from flareclust.api import run_experiment
    from flareclust.experiment.config import Experiment

    experiment = Experiment(algorithm="pooled", data="iris", n_sites=3, engine="inprocess", register_as="m")

    works = getattr(Tracker, method)

    def fails(*args, **more):
        if method == "log" and not any(name.startswith("round/") for name, _, _ in args[2]):
            return works(*args, **more)
        full_disk()

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, method, fails)
        result = run_experiment(experiment, track=True, out=tmp_path / "out")
    (warning,) = result.warnings
    assert f"but not in MLflow: {missing} (the MLflow store failed: the disk is full)" in warning
    assert warning.endswith(f"log it later with: flareclust log {tmp_path}/out --uri {store}")
    assert result.run_id is None
    tracker = Tracker(store)
    before = tracker.find(read_result(tmp_path / "out").tracking["key"])
    assert (before.info.status, before.data.tags[ERROR_TAG]) == ("FAILED", warning)
    logged = run_logging._log_result(tmp_path / "out")
    assert (logged.run_id, logged.known) == (before.info.run_id, False)
    assert contents(store, logged.run_id) == contents(other, run_logging._log_result(tmp_path / "out", other).run_id)
    versions = tracker._client.search_model_versions(f"run_id = '{logged.run_id}'")
    assert [version.name for version in versions] == ["m"]


def test_a_job_that_failed_is_what_is_reported_and_not_that_its_run_could_not_be_closed(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Tracker, "fail", full_disk)
    with pytest.raises(JobFailed, match="fewer rows than k=100"):
        flareclust.run("feca", data="iris", k=100, n_sites=3, track=True, out="out")


def test_a_store_that_fails_at_the_start_is_reported_before_any_work(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Tracker, "start", full_disk)
    monkeypatch.setattr("flareclust.flows.run.submit", None)
    with pytest.raises(NoAnswer, match="the MLflow store failed: the disk is full"):
        run_tracked()
    assert list(tmp_path.iterdir()) == []


def test_an_alias_is_offered_where_it_is_asked_for(store, tmp_path):
    from flareclust.api import run_experiment
    from flareclust.experiment.config import Experiment

    experiment = Experiment(algorithm="kfed", data="iris", n_sites=3, engine="inprocess", register_as="late")
    run_experiment(experiment, track=False, out=tmp_path / "out")
    logged = run_logging._log_result(tmp_path / "out", alias="champion")
    assert logged.decision == "version 1 of late has the alias champion: it is the first to have it"
    assert "has it already" in run_logging._log_result(tmp_path / "out", alias="champion").decision
    run_tracked()
    with pytest.raises(UserError, match="--metric decides about an alias"):
        run_logging._log_result(tmp_path / "out", metric="final/ari")


def test_what_cannot_be_logged_is_refused(store, tmp_path):
    with pytest.raises(UserError, match="holds no complete result"):
        run_logging.log_folder(tmp_path)
    run_tracked()
    with pytest.raises(UserError, match="registers no model"):
        run_logging.log_folder(tmp_path / "out", alias="champion")
    StudyRunner("s", file=tmp_path / "sweep" / "trials.jsonl", track=False)(trials(2))
    with pytest.raises(UserError, match="is of a sweep"):
        run_logging.log_folder(tmp_path / "sweep", alias="champion")


# --- sweeps ---


def trials(n, broken=None):
    def measure(i):
        if i == broken:
            raise JobFailed("no quorum")
        return study_trials.TrialResult(
            {"l2": 1 / (i + 3), "ari": None}, {"bytes_up": 8.0}, [{"round": 0.0, "moved": 0.1}]
        )

    cells = [{"algorithm": "ab"[i % 2], "partition": "iid"} for i in range(n)]
    return [
        study_trials.Trial(cells[i], i // 2, {"k": 3, "params": {"n_init": 2}}, lambda i=i: measure(i))
        for i in range(n)
    ]


def tracked(name, todo, uri, file):
    """Run a study as its flow does; return its file and its tracker."""
    kept, tracker = study_files.TrialFile(file, name, todo, "flareclust"), SweepTracker(name, todo, uri)
    kept.results = tracker.finished(kept.results) | kept.results
    for done in kept.done:
        tracker.add(done)
    kept.run(tracker.follow(study_trials.attempt_any), 1, tracker.add)
    tracker.complete(kept.done)
    return kept, tracker


def family(uri, parent):
    """Return the contents of a parent run and of its children by name; the parents' ids differ."""
    client = Tracker(uri)._client
    (experiment,) = client.search_experiments(filter_string="name = 'flareclust'")
    children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'")
    return contents(uri, parent), {run.info.run_name: contents(uri, run.info.run_id) for run in children}


@pytest.mark.parametrize("broken", [None, 1])
def test_a_sweep_is_logged_from_its_folder_as_its_flow_would_have(store, other, tmp_path, broken):
    name, todo = f"sweep {broken}", trials(4, broken)
    _, tracker = tracked(name, todo, other, tmp_path / "other.jsonl")
    StudyRunner(name, file=tmp_path / "s" / "trials.jsonl", track=False)(todo)
    (logged,) = run_logging.log_folder(tmp_path / "s").values()
    (again,) = run_logging.log_folder(tmp_path / "s").values()
    assert (logged.known, again.known, logged.run_id) == (False, True, again.run_id)
    assert family(store, logged.run_id) == family(other, tracker.parent)
    assert len(family(store, logged.run_id)[1]) == 4


def test_settings_of_a_trial_are_parameters_of_its_run_and_those_of_the_algorithm_have_a_prefix(store, tmp_path):
    _, tracker = tracked("settings", trials(2), store, tmp_path / "trials.jsonl")
    for _, _, params, *_ in family(store, tracker.parent)[1].values():
        assert params == {"k": "3", "param.n_init": "2", "seed": "0"}


def test_a_part_of_a_sweep_is_not_logged_as_the_whole(store, tmp_path):
    file = study_files.TrialFile(tmp_path / "trials.jsonl", "part", trials(4), "flareclust")
    file.add(0, StudyRunner("part", file=tmp_path / "one.jsonl", track=False)(trials(1))[0])
    with pytest.raises(UserError, match="has 1 trials and not all of its study; the same command runs the others"):
        run_logging.log_folder(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps({**line, "study": None}) + "\n" for line in lines))
    with pytest.raises(UserError, match="is not a file of trials"):
        run_logging.log_folder(tmp_path)


class Failing:
    """A method that fails with the calls of these numbers."""

    def __init__(self, method, calls):
        self.method, self.calls, self.n = method, calls, 0

    def __get__(self, owner, kind=None):
        def call(*args):
            self.n += 1
            if self.n - 1 in self.calls:
                full_disk()
            return self.method(owner, *args)

        return call


@pytest.mark.parametrize("method", ["_begin", "_end"])
def test_a_store_that_fails_for_a_while_gets_the_trials_in_the_end(store, other, tmp_path, monkeypatch, method):
    todo, name = trials(4), f"while {method}"
    with monkeypatch.context() as patch:
        patch.setattr(SweepTracker, method, Failing(getattr(SweepTracker, method), {1}))
        _, tracker = tracked(name, todo, store, tmp_path / "t.jsonl")
    assert (tracker.lost, tracker.unlogged) == (None, 0)
    _, whole = tracked(name, todo, other, tmp_path / "other.jsonl")
    assert family(store, tracker.parent) == family(other, whole.parent)


def test_trials_that_the_file_has_are_logged_and_not_run_again(store, other, tmp_path, monkeypatch):
    todo = trials(3)
    with monkeypatch.context() as patch:
        patch.setattr(SweepTracker, "_end", Failing(SweepTracker._end, range(1, 99)))
        kept, tracker = tracked("again", todo, store, tmp_path / "t.jsonl")
    assert [one.error for one in kept.done] == [None] * 3
    assert tracker.unlogged == 2
    assert str(tracker.lost) == "the MLflow store failed: the disk is full"
    never = [study_trials.Trial(one.cell, one.seed, one.params, None) for one in todo]
    kept, tracker = tracked("again", never, store, tmp_path / "t.jsonl")
    assert (tracker.lost, [one.resumed for one in kept.done]) == (None, [True] * 3)
    _, whole = tracked("again", todo, other, tmp_path / "other.jsonl")
    assert family(store, tracker.parent) == family(other, whole.parent)


def test_errors_of_drivers_become_one_line(stores):
    with pytest.raises(NoAnswer) as raised, store_errors(stores[0]):
        raise ValueError("first line\nsecond")
    assert str(raised.value) == "the MLflow store failed: first line"
    with pytest.raises(run_logging._NotLogged), store_errors(stores[0]):
        raise run_logging._NotLogged("as it is")
