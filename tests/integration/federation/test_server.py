"""The server crashes: the user gets a message within seconds, the flow submits once more, and no half result is taken for one."""

import io
import time
import zipfile
from pathlib import Path

import clock
import numpy as np
import processes
import pytest
from conftest import SITES
from harness import LEAD, SERVER, Federation, wait_until
from jobs import Job, disturbed, jobs_in_store, rounds_of, runs_of
from machines import flareclust

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import ARRAYS, SUMMARY, read
from flareclust.protocol.outcome import ROUNDS as ROUNDS_FILE
from flareclust.protocol.registry import get
from flareclust.tracking.store import connect

pytestmark = pytest.mark.slow

ROUNDS = 25
PARAMS = {"rounds": ROUNDS, "tol": 0.0}


def test_a_crashed_server_is_reported_within_the_deadline(federation, record):
    """Its daemon starts it again at once, so that it answers, but knows nothing of the job."""
    job = Job(federation, get("fkm"), JobOptions(k=5, seed=3, min_sites=3, deadline=60), PARAMS)
    job.wait_round(2)
    at = time.monotonic()
    federation.crash_server()
    with pytest.raises(JobFailed) as caught:
        job.outcome()
    assert caught.value.transient, "a flow would not try again"
    assert job.ended - at < 60
    record(
        "server crash",
        "SIGKILL of the server's parent and job in the middle of a job",
        "the server's daemon starts it again and the sites connect again; the job is lost, and may be submitted anew",
        str(caught.value),
        job.ended - at,
    )


def test_a_job_that_a_crash_has_lost_is_called_so_and_can_be_removed(federation, tmp_path, record):
    """By a clock of two days later, as `flareclust prune` removes nothing that is younger than a day."""
    later = clock.shifted(tmp_path, 2 * 24 * 3600)
    if later is None:
        pytest.skip("no C compiler (cc) for the library that shifts a process's clock")
    kits, before = (federation.kit(LEAD), federation.kit(SERVER)), runs_of(federation)
    job = Job(federation, get("fkm"), JobOptions(k=5, seed=3, min_sites=3, deadline=600), PARAMS)
    job.wait_round(2)
    (lost,) = runs_of(federation) - before
    at = time.monotonic()
    federation.crash_server()
    with pytest.raises(JobFailed, match="has lost the job"):
        job.outcome()
    federation.wait_connected()
    with federation.session(LEAD) as session:
        assert session.get_job_meta(lost.name)["status"] == "FINISHED:ABANDONED"
    seconds = time.monotonic() - at

    said = [flareclust(tmp_path, "prune", kit, "--older-than", 1, **later).stdout for kit in kits]
    assert all(f"removed {lost.name}, of " in one for one in said)
    assert lost.name not in {path.name for path in jobs_in_store(federation)}
    assert not lost.exists()
    record(
        "job lost in a crash",
        "SIGKILL of the server's parent and job in the middle of a job, which is not submitted again",
        "when the server is back, the job has the status FINISHED:ABANDONED; `flareclust prune` removes it with the lead's kit, and its folder with the server's",
        next(line for line in said[0].splitlines() if lost.name in line).replace(lost.name, "JOB"),
        seconds,
    )


@pytest.mark.nightly
def test_a_flow_submits_a_lost_job_once_more_under_the_same_mlflow_run(federation, files, tmp_path, record):
    tracking = f"sqlite:///{tmp_path}/mlflow.db"
    arguments = [
        "run",
        "fkm",
        "--k",
        "5",
        "--seed",
        "3",
        "--min-sites",
        "3",
        "--set",
        f"rounds={ROUNDS}",
        "--set",
        "tol=0",
    ]
    arguments += ["--engine", "production", "--kit", str(federation.kit(LEAD)), "--out", str(tmp_path / "result")]
    seconds = disturbed(
        federation, ["-m", "flareclust", *arguments], tmp_path, tracking, disturb=federation.crash_server
    )

    client = connect(tracking)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = [run for run in client.search_runs(experiments) if "mlflow.parentRunId" not in run.data.tags]
    assert run.info.status == "FINISHED"
    outcome, _ = read(tmp_path / "result")
    here = run_inprocess(get("fkm"), PARAMS, files, JobOptions(k=5, seed=3, min_sites=3))
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    record(
        "server crash under a flow",
        "the same in a tracked run, `flareclust run ... --engine production`",
        "the flow submits the job once more, under the same MLflow run, which ends as FINISHED; the result is the same",
        "nothing: the run took longer",
        seconds,
    )


def _killed_while_writing(federation: Federation) -> tuple[Job | None, float]:
    """Return a job whose process at the server was killed while it wrote its result, and when; None where that came too late."""
    before = runs_of(federation)
    options = JobOptions(k=5, seed=3, min_sites=3, deadline=600)
    job = Job(federation, get("fkm"), options, {"rounds": 6, "tol": 0.0})
    wait_until(lambda: job.ended or rounds_of(federation, before), "the job is under way")
    assert not job.ended, job.outcome()
    (folder,) = runs_of(federation) - before
    server = processes.job_of_kit(federation.kit(SERVER))
    wait_until(lambda: job.ended or list(folder.glob(f"{ARRAYS}*")), "the result is being written", every=0.0005)
    for process in server:
        process.kill()
    at = time.monotonic()
    if not (folder / SUMMARY).exists():
        return job, at
    wait_until(lambda: job.ended, "the job has ended")
    return None, at


def test_a_result_that_was_not_written_to_its_end_is_none(federation, record, rng):
    """The server's job is killed while it writes a large result.npz."""
    for site in SITES:
        file = federation.kit(site) / "data" / "wide.npy"
        np.save(file, rng.normal(size=(60, 30_000)))
        federation.configure(site, path=str(file))
    job, attempts = None, 0
    while job is None and attempts < 3:  # on a busy machine the result may be complete before the process is killed
        stored, attempts = jobs_in_store(federation), attempts + 1
        job, at = _killed_while_writing(federation)
    assert job is not None, "the process was killed too late three times"
    with pytest.raises(JobFailed) as caught:
        job.outcome()
    (new,) = jobs_in_store(federation) - stored
    names = kept_of(new)
    assert any(name.endswith(ROUNDS_FILE) for name in names), names
    assert not [name for name in names if name.endswith(SUMMARY)], "a killed job left what counts as a result"
    record(
        "killed while writing",
        "SIGKILL of the server's job while it writes result.npz",
        "there is no result.json, which comes last, so nobody takes what is there for a result",
        str(caught.value).replace(new.name, "JOB"),
        job.ended - at,
    )


def kept_of(stored: Path) -> list[str]:
    """Return the names of what the server keeps of a job's run."""
    with zipfile.ZipFile(io.BytesIO((stored / "workspace").read_bytes())) as kept:
        return kept.namelist()
