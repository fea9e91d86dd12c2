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

from tests.alerts import alerts
from tests.integration.flows.nightly_cases import TINY, champion, run_of
from tests.paths import ROOT
from tests.patience import PATIENCE
from tests.scheduler import Scheduler, started

pytestmark = pytest.mark.slow

NIGHTLY, POOL = "flareclust-nightly", "flareclust"
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
        like("alerted", real | {"expect_sites": ["site-1", "site-2", "site-9"]}),
        like("stopped-real", real | ENDLESS, pool="stopped"),
        like("stopped-simulated", SIMULATED, pool="stopped"),
    ]
    return project


@contextlib.contextmanager
def federation(scheduler: Scheduler) -> Iterator[Path]:
    """Two provisioned sites, each with rows of its own; gives the lead's kit."""
    from flareclust.platform.poc.federation import find

    folder = scheduler.folder / "poc"
    poc = [sys.executable, "-m", "flareclust", "poc"]
    limits = {"env": scheduler.env, "cwd": scheduler.folder, "timeout": PATIENCE}
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


def ended(scheduler, run_id):
    """Wait until a flow run is over and return its state."""
    final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
    scheduler.wait(lambda: scheduler.state_of(run_id) in final, "the flow run is over")
    return scheduler.state_of(run_id)


def completed(scheduler, deployment):
    """Return the flow runs of a deployment that reached their end; not those that were left out."""
    return [run for run in scheduler.runs_of(deployment) if run.state.is_completed()]


# Schedules


def rest(scheduler):
    """Pause the deployment that runs every minute, and wait until none of its runs is under way."""
    scheduler.pause(f"{NIGHTLY}/often")
    scheduler.wait(lambda: not scheduler.processes("flareclust.flows.guard"), "no further run is under way")


def test_the_projects_deployments_say_what_they_should(scheduler):
    with scheduler.client() as client:
        nightly = client.read_deployment_by_name(f"{NIGHTLY}/nightly")
        manual = client.read_deployment_by_name("flareclust-experiment/experiment")
        sweep = client.read_deployment_by_name("flareclust-sweep/sweep")
    (schedule,) = nightly.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.active) == ("0 2 * * *", "Europe/Berlin", True)
    assert (nightly.global_concurrency_limit.limit, nightly.work_pool_name) == (1, POOL)
    assert nightly.concurrency_options.collision_strategy.value == "CANCEL_NEW"
    assert nightly.parameters["experiment"]["register_as"]
    assert nightly.entrypoint == "flareclust.flows.nightly.nightly_flow"
    assert list(manual.schedules) == list(sweep.schedules) == []
    assert sweep.parameters["sweep"]["algorithms"] == ["feca", "kfed"]
    (step,) = nightly.pull_steps
    assert step["prefect.deployments.steps.set_working_directory"]["directory"] == str(scheduler.folder)


def test_the_page_shows_the_projects_deployment():
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "schedules.md").read_text(), flags=re.DOTALL)
    (shown,) = (block for block in blocks if "\ndeployments:" in block)
    project = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    assert yaml.safe_load(shown)["deployments"] == [
        {name: value for name, value in project["deployments"][0].items() if name != "description"}
    ]


def test_the_scheduler_runs_a_federation_of_provisioned_sites_whose_model_is_tracked_and_the_champion(
    scheduler, client
):
    """Also what shows that Prefect gets on with the installed fastapi and sqlalchemy: with others no run appears."""
    first = scheduler.wait(lambda: completed(scheduler, f"{NIGHTLY}/often"), "a scheduled run is over")[0]
    rest(scheduler)
    assert first.auto_scheduled
    run = run_of(client, first.id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "feca/sites/k3/none/s0")
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


def test_a_manual_run_takes_its_experiment_from_the_command_line(scheduler, client):
    experiment = json.dumps(TINY | {"algorithm": "kfed", "seed": 3})
    said = scheduler.run(
        "deployment", "run", "flareclust-experiment/experiment", "--param", f"experiment={experiment}", "--watch"
    )
    assert "Completed" in said
    (run,) = scheduler.runs_of("flareclust-experiment/experiment")
    assert run.state.is_completed()
    assert run_of(client, run.id).info.run_name == "kfed/iris/k3/iid/s3"


def test_a_wrong_experiment_is_refused_when_the_run_is_asked_for(scheduler):
    wrong = json.dumps(TINY | {"kk": 3})
    said = scheduler.run("deployment", "run", f"{NIGHTLY}/endless", "--param", f"experiment={wrong}", code=1)
    assert "kk" in " ".join(said.split())


@pytest.mark.nightly
def test_a_served_flow_runs_by_its_schedule(scheduler, client):
    (scheduler.folder / "serve.py").write_text(SERVE % (TINY | {"register_as": "served"}))
    with scheduler.process([sys.executable, "serve.py"], "serve.log") as process:
        scheduler.wait(lambda: champion(client, "served"), "the served flow's model has the alias")
        scheduler.pause(f"{NIGHTLY}/served")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    run = client.get_model_version("served", "1").run_id
    assert client.get_run(run).info.status == "FINISHED"


# Alerts


def test_the_pages_automation_reports_a_night_without_a_site_and_one_that_failed(scheduler):
    rest(scheduler)
    with alerts(scheduler) as texts:
        run_id = scheduler.start_run(f"{NIGHTLY}/alerted")
        assert ended(scheduler, run_id) == "COMPLETED"
        (text,) = scheduler.wait(lambda: list(texts), "the hook is called for the missing site")
        assert text.startswith("flareclust.night.noticed: ")
        assert "site-9 was not connected when the job began" in text

        wrong = TINY | {"k": 100, "register_as": "alerted"}  # more than a site has rows
        run_id = scheduler.start_run(f"{NIGHTLY}/alerted", experiment=wrong)
        assert ended(scheduler, run_id) == "FAILED"
        scheduler.wait(lambda: len(texts) == 2, "the hook is called for the failure")
        assert texts[1].startswith("prefect.flow-run.Failed: ")
        assert "has fewer rows than k=100" in texts[1]


# Being stopped


def under_way(scheduler, deployment, process, n=2):
    """Start an endless job, the only one, and wait until n processes, of both its sites, are at work; return the flow run's id."""
    rest(scheduler)
    run_id = scheduler.start_run(deployment)
    scheduler.wait(lambda: len(scheduler.processes(process)) >= n, "the sites' processes are running")
    return run_id


def last_state(scheduler):
    """Wait until no process of a job is left at the provisioned sites; return the state of the last job there."""
    from flareclust.platform.poc.federation import find
    from flareclust.platform.session import open_session

    scheduler.wait(lambda: not scheduler.processes("_process "), "the sites' processes are gone")
    with open_session(find(scheduler.folder / "poc").admin_kit) as session:

        def last() -> str:
            return str(max(session.list_jobs(detailed=True), key=lambda job: job["submit_time"])["status"])

        scheduler.wait(lambda: last().startswith("FINISHED"), "the job has ended")
        return last()


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_worker_that_is_asked_to_stop_aborts_its_job_at_the_sites(scheduler, client):
    with scheduler.worker("stopped", "stopped.log") as worker:
        run_id = under_way(scheduler, f"{NIGHTLY}/stopped-real", SITE)
        worker.terminate()
        worker.wait(PATIENCE)
    assert ended(scheduler, run_id) == "CRASHED"
    assert last_state(scheduler) == "FINISHED:ABORTED"
    assert run_of(client, run_id).info.status == "KILLED"


@pytest.mark.nightly
def test_a_worker_that_is_stopped_with_all_its_processes_ends_a_simulated_job(scheduler, client):
    """As systemd does by default: it signals all processes of the service."""
    with scheduler.worker("stopped", "stopped.log") as worker:
        # four of the simulator itself, and its two sites
        run_id = under_way(scheduler, f"{NIGHTLY}/stopped-simulated", "flareclust.platform.simulated", 6)
        family = psutil.Process(worker.pid).children(recursive=True)
        for process in (worker, *family):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
                if process is worker or "flareclust.flows.guard" in process.cmdline():
                    process.terminate()
        worker.wait(PATIENCE)
    assert ended(scheduler, run_id) == "CRASHED"
    scheduler.wait(lambda: not scheduler.processes("simulator"), "the simulator's processes are gone")
    assert run_of(client, run_id).info.status == "KILLED"
    assert not list(scheduler.folder.glob("fc-*"))
