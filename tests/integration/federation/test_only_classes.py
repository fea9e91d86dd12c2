"""A lead who submits hand-made jobs of configuration only, with honest sites and an honest server, gets nothing done.

Each attack names something of ours or of NVFlare's that is no part of an exported job. None of them may change a file of
a kit, run code or take a file out of a site, and the next honest job must work under the sites' policies.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import processes
import psutil
import pytest
from by_hand import AT_SERVER, ATTACKS, CODE, SECRET_ID, STREAMER, files_of, hand_made, importing, marks, named, submit
from harness import SERVER, Federation, wait_until
from jobs import Job

from flareclust._foundation.errors import JobFailed
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.testing import iid_sites

pytestmark = pytest.mark.slow

SITES = ("north", "south")
#: Variables that server and sites are started with, for something else.
SECRETS = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY")

OPTIONS = JobOptions(k=4, seed=3, min_sites=2, task_timeout=600, deadline=600)


@pytest.fixture(scope="module")
def made() -> Iterator[Federation]:
    """A server and two sites with the policy of the kits; south lets its log go to the server."""
    federation = Federation(SITES, policy={"min_count": 10})
    try:
        for site, rows in iid_sites(m=2, k=4)[0].items():
            name = SITES[int(site.rpartition("-")[2]) - 1]
            folder = federation.kit(name) / "data"
            folder.mkdir()
            table = np.column_stack([np.arange(len(rows)) + SECRET_ID, rows])
            np.savez(folder / "rows.npz", X=table, columns=np.array(["id", "a", "b", "c"]))
            federation.configure(name, path=str(folder / "rows.npz"), id="id")
        resources = federation.kit("south") / "local" / "resources.json.default"
        said = json.loads(resources.read_text()) | {"allow_log_streaming": True}
        resources.write_text(json.dumps(said, indent=2) + "\n")
        for host in (SERVER, *SITES):
            federation.start(host, env={name: f"secret-{host}" for name in SECRETS})
        federation.wait_connected()
        yield federation
    finally:
        federation.close()


@pytest.fixture
def federation(made: Federation) -> Iterator[Federation]:
    """The federation; after each attack no file of a kit has changed, and no code ran."""
    made.heal()
    before = files_of(made)
    yield made
    after, ran = files_of(made), marks(made)
    for path in {*before, *after}:  # as they were, so that each attack is seen by itself
        if path in before:
            path.write_bytes(before[path])
        else:
            path.unlink()
    for path in ran:
        path.unlink()
    assert [path.name for path in {*before, *after} if before.get(path) != after.get(path)] == []
    assert ran == []


def rows_disclosed(federation: Federation) -> int:
    """Return how many of the sites' rows reach a job that asks for rows, which every policy refuses."""
    own = [np.load(federation.kit(site) / "data" / "rows.npz")["X"][:, 1:] for site in SITES]
    try:
        outcome = Job(federation, get("dkmpp"), OPTIONS, {"seeds": "rows", "min_count": 1}).outcome()
    except JobFailed as refused:
        if "policy" not in str(refused):
            raise
        return 0
    rows = {row.tobytes() for site in own for row in np.ascontiguousarray(site)}
    reported = [array.reshape(-1, 3) for array in outcome.arrays.values() if array.shape[-1:] == (3,)]
    return len(rows & {np.ascontiguousarray(row, dtype=float).tobytes() for array in reported for row in array})


def logs(federation: Federation, job: str) -> str:
    """Return what server and sites have logged about a job, its processes' own logs among it."""
    own = [path for host in (SERVER, *SITES) for path in (federation.kit(host)).glob(f"{job}/*log.txt")]
    hosts = [federation.kit(host) / "log.txt" for host in (SERVER, *SITES)]
    lines = [line for path in hosts for line in path.read_text().splitlines() if job in line]
    return "\n".join([*(path.read_text() for path in own), *lines])


def test_a_site_calls_no_function_that_a_job_names(federation, tmp_path):
    for number, attack in enumerate(ATTACKS):
        job, _ = submit(federation, hand_made(tmp_path / str(number), OPTIONS, client=ATTACKS[attack]))
        assert f"Component '{named(attack)}' at config path" in logs(federation, job), attack


def test_a_server_calls_no_function_that_a_job_names(federation, tmp_path):
    _, reported = submit(federation, hand_made(tmp_path / "job", OPTIONS, server=AT_SERVER))
    assert "Component 'flareclust.cli.main.app' at config path" in reported


def test_a_file_beside_the_configuration_is_refused_and_no_later_job_runs_it(federation, tmp_path):
    first, reported = submit(federation, hand_made(tmp_path / "first", OPTIONS, files={"config/extra.py": CODE}))
    kept = [path for host in (SERVER, *SITES) for path in (federation.kit(host) / first).rglob("*.py")]
    submit(federation, hand_made(tmp_path / "second", OPTIONS, client=importing(first, "north")))
    submit(federation, hand_made(tmp_path / "third", OPTIONS, server=importing(first, "server")))
    assert marks(federation) == []
    assert kept == []
    assert "refuses the job for its file" in reported
    assert "config/extra.py" in reported


def test_no_class_of_nvflare_takes_a_file_out_of_a_site(federation, tmp_path):
    """South lets its log go to the server, which NVFlare does with any file of the job's folder: labels with ids."""
    secret = re.compile(rf"{str(SECRET_ID)[:-3]}\d\d\d".encode())
    for identity, reason in (("attack", "is not in allow_list"), ("auto_log_streamer", "as log_file_name")):
        job, _ = submit(federation, hand_made(tmp_path / identity, OPTIONS, client={"id": identity, **STREAMER}))
        at_server = [path for root in (federation.kit(SERVER), federation.folder / "tmp") for path in root.rglob("*")]
        assert [path for path in at_server if path.is_file() and secret.search(path.read_bytes())] == []
        assert reason in logs(federation, job)


@pytest.mark.parametrize("side", ["client", "server"])
def test_no_environment_variable_comes_back_that_a_job_names(federation, tmp_path, side):
    """As far as the lead can see, and whatever is in the logs of server and sites."""
    noted = {"path": "flareclust.executors.lloyd.LloydExecutor", "args": {"k": 2, "table_schema": f"{{${SECRETS[0]}}}"}}
    job, reported = submit(federation, hand_made(tmp_path / "job", OPTIONS, **{side: noted}))
    assert f"config/config_fed_{side}.json has a brace in 'components[" in reported
    assert "secret-" not in reported + logs(federation, job)
    assert not [host for host in (SERVER, *SITES) if (federation.kit(host) / job).exists()]


def test_the_processes_of_jobs_get_no_variable_that_is_not_listed(federation):
    job = Job(federation, get("lloyd"), OPTIONS)
    seen: dict[str, dict[str, str]] = {}

    def looked() -> bool:
        for host in (SERVER, *SITES):
            for process in processes.job_of_kit(federation.kit(host)):
                with suppress(psutil.Error):
                    seen[host] = process.environ()
        return len(seen) == 1 + len(SITES)

    wait_until(looked, "every process of the job was seen", every=0.02)
    assert job.outcome().refused == {}
    for host, environment in seen.items():
        assert environment["PATH"], host
        assert not {*SECRETS} & {*environment}, host
    (parent,) = processes.without_daemon(federation.kit(SERVER))
    assert parent.environ()[SECRETS[0]] == f"secret-{SERVER}"


def test_the_next_honest_jobs_run_under_the_policies(federation):
    """After all attacks above: what they had changed in the processes of server and sites would show now."""
    assert rows_disclosed(federation) == 0
    outcome = Job(federation, get("lloyd"), OPTIONS, {"min_count": 1}).outcome()
    assert set(outcome.sites) == set(SITES)
    assert outcome.refused == {}
