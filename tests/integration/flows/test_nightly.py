"""Federations by a schedule: a real Prefect server whose scheduler, workers and served flows really run them.

One server, one worker and one federation of two provisioned sites serve all tests.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.tracking.store import NoAnswer
from tests.paths import ROOT
from tests.scheduler import STOPS, Scheduler, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NIGHTLY, POOL = "flareclust-nightly", "flareclust"
TINY = {"algorithm": "feca", "data": "iris", "n_sites": 3, "engine": "inprocess"}
#: Goes on for hours unless it is stopped.
ENDLESS = {"algorithm": "minibatch", "k": 3, "params": {"rounds": 10_000}}
#: What a site's process of a job has in its command line.
SITE = "nvflare.private.fed.app.client.worker_process"
SIMULATED = TINY | ENDLESS | {"engine": "simulator"}

SERVE = """
from datetime import timedelta

from prefect.schedules import Interval

from flareclust.flows.nightly import nightly_flow

if __name__ == "__main__":
    parameters = {"experiment": %r}
    nightly_flow.serve(name="served", schedule=Interval(timedelta(seconds=5)), limit=1, parameters=parameters)
"""


def deployments(kit: Path) -> dict[str, object]:
    """Return the project's prefect.yaml with some more deployments, which differ from `nightly` in a few lines."""
    project = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    nightly = project["deployments"][0]
    # What `nightly` has, with a kit that there is.
    real = nightly["parameters"]["experiment"] | {"kit": str(kit)}

    def like(name: str, experiment: dict[str, object], pool: str = POOL, **more: object) -> dict[str, object]:
        work_pool = nightly["work_pool"] | {"name": pool}
        parameters = {"experiment": experiment | {"register_as": name}}
        return nightly | {"name": name, "parameters": parameters, "work_pool": work_pool, "schedules": []} | more

    project["deployments"] += [
        like("often", real, schedules=[{"cron": "* * * * *", "timezone": "Europe/Berlin", "slug": "often"}]),
        like("endless", real | ENDLESS),
        like("stopped-real", real | ENDLESS, pool="stopped"),
        like("stopped-simulated", SIMULATED, pool="stopped"),
    ]
    return project


@contextlib.contextmanager
def federation(scheduler: Scheduler) -> Iterator[Path]:
    """Two provisioned sites, each with rows of its own; gives the lead's kit."""
    from flareclust.engines.poc.federation import find

    folder = scheduler.folder / "poc"
    poc = [sys.executable, "-m", "flareclust.cli", "poc"]
    limits = {"env": scheduler.env, "cwd": scheduler.folder, "timeout": 150}
    subprocess.run([*poc, "up", "--n-sites", "2", "--data", "iris", "--dir", str(folder)], check=True, **limits)
    try:
        yield find(folder).admin_kit
    finally:
        subprocess.run([*poc, "down", "--remove", "--dir", str(folder)], check=True, **limits)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """A server, a federation, the deployments, and a worker of the pool `flareclust`."""
    import flareclust.flows.experiment  # noqa: F401 - sets Prefect's switches before it is imported

    with started() as scheduler, federation(scheduler) as lead:
        for pool in (POOL, "stopped"):
            scheduler.run("work-pool", "create", pool, "--type", "process")
        (scheduler.folder / "prefect.yaml").write_text(yaml.safe_dump(deployments(lead)))
        scheduler.run("--no-prompt", "deploy", "--all")
        with scheduler.worker(POOL, "worker.log"):
            yield scheduler


@pytest.fixture
def client(scheduler):
    from mlflow import MlflowClient

    return MlflowClient(scheduler.store)


def run_of(client, flow_run_id):
    """Return the MLflow run of a flow run; None if there is none, or more than one."""
    experiment = client.get_experiment_by_name("flareclust")
    tag = f"tags.`prefect.flow_run_id` = '{flow_run_id}'"
    found = client.search_runs([experiment.experiment_id], filter_string=tag)
    return found[0] if len(found) == 1 else None


def champion(client, model):
    """Return the version that has the alias; None if there is none."""
    (found,) = client.search_registered_models(f"name = '{model}'") or [None]
    return int(found.aliases["champion"]) if found and "champion" in found.aliases else None


def ended(scheduler, run_id):
    """Wait until a flow run is over and return its state."""
    final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
    scheduler.wait(lambda: scheduler.state_of(run_id) in final, "the flow run is over")
    return scheduler.state_of(run_id)


def completed(scheduler, deployment):
    """Return the flow runs of a deployment that reached their end; not those that were left out."""
    return [run for run in scheduler.runs_of(deployment) if run.state.is_completed()]


# Schedules


def test_the_projects_deployments_say_what_they_should(scheduler):
    with scheduler.client() as client:
        nightly = client.read_deployment_by_name(f"{NIGHTLY}/nightly")
        manual = client.read_deployment_by_name("flareclust-experiment/manual")
    (schedule,) = nightly.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.active) == ("0 2 * * *", "Europe/Berlin", True)
    assert (nightly.global_concurrency_limit.limit, nightly.work_pool_name) == (1, POOL)
    assert nightly.concurrency_options.collision_strategy.value == "CANCEL_NEW"
    assert nightly.parameters["experiment"]["register_as"]
    assert nightly.entrypoint == "flareclust.flows.nightly.nightly_flow"
    assert list(manual.schedules) == []
    (step,) = nightly.pull_steps
    assert step["prefect.deployments.steps.set_working_directory"]["directory"] == str(scheduler.folder)


def test_the_page_shows_the_projects_deployment():
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "schedules.md").read_text(), flags=re.DOTALL)
    project = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    assert yaml.safe_load(shown)["deployments"] == [
        {name: value for name, value in project["deployments"][0].items() if name != "description"}
    ]


def test_the_scheduler_runs_a_federation_of_provisioned_sites_whose_model_is_tracked_and_the_champion(
    scheduler, client
):
    """Also what shows that Prefect gets on with the installed fastapi and sqlalchemy: with others no run appears."""
    first = scheduler.wait(lambda: completed(scheduler, f"{NIGHTLY}/often"), "a scheduled run is over")[0]
    scheduler.pause(f"{NIGHTLY}/often")
    assert first.auto_scheduled
    run = run_of(client, first.id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "feca/none/s0")
    assert run.data.params["engine"] == "production"
    assert run.data.metrics["final/simplified_silhouette"] > 0
    assert [run.data.metrics[f"final/{name}"] for name in ("centroids_found", "sites_took_part")] == [3, 2]
    assert {"flareclust.run_key", "nvflare.job_id"} <= set(run.data.tags)
    version = client.get_model_version("often", "1")
    assert (version.run_id, version.tags["flareclust.champion"]) == (
        run.info.run_id,
        "is the first to have it",
    )
    assert champion(client, "often") >= 1
    assert list((scheduler.folder / "flareclust-runs").glob("*/result.json"))
    scheduler.wait(lambda: not scheduler.processes("flareclust.flows.guard"), "no further run is under way")


def test_a_manual_run_takes_its_experiment_from_the_command_line(scheduler, client):
    experiment = json.dumps(TINY | {"algorithm": "kfed", "seed": 3})
    said = scheduler.run(
        "deployment", "run", "flareclust-experiment/manual", "--param", f"experiment={experiment}", "--watch"
    )
    assert "Completed" in said
    (run,) = scheduler.runs_of("flareclust-experiment/manual")
    assert run.state.is_completed()
    assert run_of(client, run.id).info.run_name == "kfed/iid/s3"


def test_a_wrong_experiment_is_refused_when_the_run_is_asked_for(scheduler):
    wrong = json.dumps(TINY | {"kk": 3})
    said = scheduler.run("deployment", "run", f"{NIGHTLY}/endless", "--param", f"experiment={wrong}", code=1)
    assert "kk" in " ".join(said.split())


def test_a_served_flow_runs_by_its_schedule(scheduler, client):
    (scheduler.folder / "serve.py").write_text(SERVE % (TINY | {"register_as": "served"}))
    with scheduler.process([sys.executable, "serve.py"], "serve.log") as process:
        scheduler.wait(lambda: champion(client, "served"), "the served flow's model has the alias")
        scheduler.pause(f"{NIGHTLY}/served")
        process.terminate()
        assert process.wait(STOPS) == 0
    run = client.get_model_version("served", "1").run_id
    assert client.get_run(run).info.status == "FINISHED"


# Being stopped


def under_way(scheduler, deployment, process):
    """Start an endless job and wait until both its sites, or more, are at work; return the flow run's id."""
    run_id = scheduler.start_run(deployment)
    scheduler.wait(lambda: len(scheduler.processes(process)) >= 2, "the sites' processes are running")
    return run_id


def last_state(scheduler):
    """Wait until no process of a job is left at the provisioned sites; return the state of the last job there."""
    from flareclust.engines.poc.federation import find
    from flareclust.flare.session import open_session

    scheduler.wait(lambda: not scheduler.processes("_process "), "the sites' processes are gone")
    with open_session(find(scheduler.folder / "poc").admin_kit) as session:

        def last() -> str:
            return str(max(session.list_jobs(detailed=True), key=lambda job: job["submit_time"])["status"])

        scheduler.wait(lambda: last().startswith("FINISHED"), "the job has ended")
        return last()


def test_a_cancelled_run_aborts_its_job_at_the_sites_and_meanwhile_no_second_one_starts(scheduler, client):
    run_id = under_way(scheduler, f"{NIGHTLY}/endless", SITE)
    assert run_of(client, run_id).info.status == "RUNNING"
    second = scheduler.start_run(f"{NIGHTLY}/endless")
    assert ended(scheduler, second) == "CANCELLED"
    assert run_of(client, second) is None

    scheduler.run("flow-run", "cancel", str(run_id))
    assert ended(scheduler, run_id) == "CANCELLED"
    assert last_state(scheduler) == "FINISHED:ABORTED"
    run = run_of(client, run_id)
    assert (run.info.status, run.data.tags["flareclust.error"]) == ("KILLED", "TerminationSignal")
    assert champion(client, "endless") is None


def test_a_worker_that_is_asked_to_stop_aborts_its_job_at_the_sites(scheduler, client):
    with scheduler.worker("stopped", "stopped.log") as worker:
        run_id = under_way(scheduler, f"{NIGHTLY}/stopped-real", SITE)
        worker.terminate()
        worker.wait(STOPS)
    assert ended(scheduler, run_id) == "CRASHED"
    assert last_state(scheduler) == "FINISHED:ABORTED"
    assert run_of(client, run_id).info.status == "KILLED"


def test_a_worker_that_is_stopped_with_all_its_processes_ends_a_simulated_job(scheduler, client):
    """As systemd does by default: it signals all processes of the service."""
    with scheduler.worker("stopped", "stopped.log") as worker:
        run_id = under_way(scheduler, f"{NIGHTLY}/stopped-simulated", "simulator_worker")
        family = psutil.Process(worker.pid).children(recursive=True)
        for process in (worker, *family):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
                if process is worker or "flareclust.flows.guard" in process.cmdline():
                    process.terminate()
        worker.wait(STOPS)
    assert ended(scheduler, run_id) == "CRASHED"
    scheduler.wait(lambda: not scheduler.processes("simulator"), "the simulator's processes are gone")
    assert run_of(client, run_id).info.status == "KILLED"
    assert not list(scheduler.folder.glob("fc-*"))


# Trying again


@pytest.fixture
def here(scheduler, monkeypatch):
    """Flows of this process run on the server and track to the store."""
    monkeypatch.chdir(scheduler.folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", scheduler.store)
    with scheduler.here():
        yield


def nightly(retries=1):
    from flareclust.flows.nightly import nightly_flow

    return nightly_flow.with_options(retries=retries, retry_delay_seconds=1)


def histories(client, run):
    return {name: len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics}


def test_a_store_that_fails_after_the_job_costs_no_second_job(here, client, monkeypatch, caplog):
    """Everything is logged but the model; the run says why, and the log how to log it later."""
    from flareclust.tracking.runs import Tracker

    asked = []

    def fails(self, run_id, *arguments):
        asked.append(run_id)
        raise OSError("the disk is full")

    monkeypatch.setattr(Tracker, "log_model", fails)
    state = nightly()({**TINY, "register_as": "unlogged"}, return_state=True)
    assert state.is_completed()
    (run_id,) = asked
    run = client.get_run(run_id)
    assert run.info.status == "FAILED"
    assert "the disk is full" in run.data.tags["flareclust.error"]
    assert "final/inertia" in run.data.metrics
    assert client.search_model_versions("name = 'unlogged'") == []
    assert "log it later with: flareclust log" in caplog.text


@pytest.mark.parametrize(
    ("error", "attempts", "jobs"),
    [
        (UserError("there is no such kit"), 1, 1),
        (JobFailed("all sites refuse"), 1, 1),
        (JobFailed("site-2 was lost", transient=True), 2, 4),
        (NoAnswer("no MLflow server answers"), 2, 2),
        (OSError("the disk is full"), 2, 2),
    ],
    ids=["user", "refused", "lost", "no answer", "disk"],
)
def test_a_flow_run_is_tried_again_only_if_its_failure_may_pass(
    here, scheduler, client, monkeypatch, error, attempts, jobs
):
    """A lost job is submitted once more by each attempt, and no more often."""
    from flareclust.flows import experiment as flows

    submitted = []

    def submit(experiment, prepared, on_round, token):
        submitted.append(token)
        raise error

    monkeypatch.setattr(flows, "submit", submit)
    state = nightly()({**TINY, "register_as": "failing"}, return_state=True)
    assert state.is_failed()
    assert str(error) in state.message
    assert len(submitted) == jobs
    with scheduler.client() as prefect:
        flow_run = prefect.read_flow_run(state.state_details.flow_run_id)
    assert (flow_run.state.type.value, flow_run.run_count) == ("FAILED", attempts)
    run = run_of(client, flow_run.id)
    assert (run.info.status, run.data.tags["flareclust.error"]) == ("FAILED", str(error))
    assert champion(client, "failing") is None


def test_an_experiment_whose_model_would_have_no_name_is_not_tried_at_all(here, client):
    state = nightly()(TINY, return_state=True)
    assert state.is_failed()
    assert "register_as: expected the name in MLflow" in state.message
    assert run_of(client, state.state_details.flow_run_id) is None


def test_a_run_that_fails_leaves_the_alias_where_it_was(here, client, monkeypatch):
    from flareclust.flows import experiment as flows

    flow = nightly(retries=0)
    good = flow({**TINY, "register_as": "kept"})
    with pytest.raises(JobFailed, match="fewer rows than k=60"):
        flow({**TINY, "register_as": "kept", "k": 60})
    monkeypatch.setattr(flows, "log_or_warn", None)
    with pytest.raises(TypeError):
        flow({**TINY, "register_as": "kept"})
    assert champion(client, "kept") == 1
    assert client.get_model_version("kept", "1").run_id == good.run_id


def test_a_model_that_is_worse_or_not_to_be_compared_is_registered_and_does_not_get_the_alias(here, client):
    """By the metric alone, the second and the third would have it: of fewer clusters, of fewer sites."""
    flow, named = nightly(), TINY | {"register_as": "compared", "k": 3}
    nights = [{}, {"k": 2}, {"n_sites": 2}, {"seed": 1}, {}]
    worth, holders = [], []
    for night in nights:
        worth.append(flow({**named, **night}).metrics["simplified_silhouette"])
        holders.append(champion(client, "compared"))
    assert worth[0] < min(worth[1:4])
    assert holders == [1, 1, 1, 4, 4]
    reasons = [client.get_model_version("compared", n).tags["flareclust.champion"] for n in "235"]
    said = ["is of k=2, and version 1 is of k=3", "but comes from 2 sites and that from 3", "worse than"]
    assert [text in reason for text, reason in zip(said, reasons, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"experiment": TINY}, "register_as: expected the name in MLflow"),
        ({"experiment": TINY | {"register_as": "x"}, "alias": "latest"}, "'latest' cannot be an alias"),
        ({"experiment": TINY | {"register_as": "x"}, "metric": "final/inertia"}, "cannot be compared by"),
    ],
)
def test_what_would_fail_after_the_job_is_refused_before_it(parameters, reason):
    from prefect.exceptions import ParameterTypeError

    from flareclust.flows.nightly import nightly_flow

    with pytest.raises(ParameterTypeError, match=reason):
        nightly_flow.validate_parameters(parameters)
