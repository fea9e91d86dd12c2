"""A lead who submits hand-made jobs of configuration only, with honest sites and an honest server, gets nothing done.

Each attack names something of ours or of NVFlare's that is no part of an exported job. None of them may change a file of
a kit, run code or take a file out of a site, and the next honest job must work under the sites' policies.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import LEAD, SERVER, Federation
from jobs import Job

from flareclust.checks import iid_sites
from flareclust.engines.job import build_job, export_job
from flareclust.engines.options import JobOptions
from flareclust.errors import JobFailed
from flareclust.registry import get

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SITES = ("north", "south")
OPTIONS = JobOptions(k=4, seed=3, min_sites=2, task_timeout=60, deadline=120)

#: What the code of an attack writes into the folder that it runs in: the kit of its site.
MARK = "code_ran.txt"
CODE = f"from pathlib import Path\nPath({MARK!r}).write_text('as ' + __name__)\n"

#: An id among a site's rows, which is in its labels.
SECRET_ID = 987654321


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
        federation.start(SERVER, *SITES)
        federation.wait_connected()
        yield federation
    finally:
        federation.close()


@pytest.fixture
def federation(made: Federation) -> Iterator[Federation]:
    """The federation; after each attack no file of a kit has changed, no code ran, and the policies hold."""
    made.heal()
    before = files_of(made)
    yield made
    after, ran = files_of(made), marks(made)
    told = rows_told(made)
    for path in {*before, *after}:  # as they were, so that each attack is seen by itself
        if path in before:
            path.write_bytes(before[path])
        else:
            path.unlink()
    for path in ran:
        path.unlink()
    assert [path.name for path in {*before, *after} if before.get(path) != after.get(path)] == []
    assert ran == []
    assert told == 0
    outcome = Job(made, get("lloyd"), OPTIONS, {"min_count": 1}).outcome()
    assert set(outcome.sites) == set(SITES)
    assert outcome.refused == {}


def files_of(federation: Federation) -> dict[Path, bytes]:
    """Return all files that say what jobs may do."""
    local = [path for host in (SERVER, *SITES) for path in (federation.kit(host) / "local").rglob("*")]
    return {path: path.read_bytes() for path in local if path.is_file()}


def marks(federation: Federation) -> list[Path]:
    return [path for host in (SERVER, *SITES) for path in federation.kit(host).rglob(MARK)]


def rows_told(federation: Federation) -> int:
    """Return how many of the sites' rows a job is told that asks for rows, which every policy refuses."""
    own = [np.load(federation.kit(site) / "data" / "rows.npz")["X"][:, 1:] for site in SITES]
    try:
        outcome = Job(federation, get("dkmpp"), OPTIONS, {"seeds": "rows", "min_count": 1}).outcome()
    except JobFailed as refused:
        if "policy" not in str(refused):
            raise
        return 0
    rows = {row.tobytes() for site in own for row in np.ascontiguousarray(site)}
    told = [array.reshape(-1, 3) for array in outcome.arrays.values() if array.shape[-1:] == (3,)]
    return len(rows & {np.ascontiguousarray(row, dtype=float).tobytes() for array in told for row in array})


def hand_made(
    folder: Path,
    *,
    client: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write an honest job with components added to one of its sides, and files to its app folder."""
    exported = export_job(build_job(get("lloyd"), {}, OPTIONS), folder)
    for side, component in (("client", client), ("server", server)):
        if component is not None:
            file = exported / "app" / "config" / f"config_fed_{side}.json"
            config = json.loads(file.read_text())
            config["components"].append({"id": "attack", **component})
            file.write_text(json.dumps(config))
    for name, text in (files or {}).items():
        path = exported / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return exported


def submit(federation: Federation, job: Path) -> tuple[str, str]:
    """Submit a job and wait for its end; return its id, and what the lead may read about it."""
    with federation.session(LEAD) as session:
        job_id = session.submit_job(str(job))
        session.wait_for_job(job_id, timeout=120, poll_interval=0.25)
        fetched = Path(session.download_job_result(job_id, str(federation.folder / "fetched")))
        logs = [path.read_text() for path in fetched.rglob("*log.txt")]
        return job_id, "\n".join([json.dumps(session.get_job_meta(job_id)), *logs])


def logs(federation: Federation, job: str) -> str:
    """Return what server and sites have logged about a job, its processes' own logs among it."""
    own = [path for host in (SERVER, *SITES) for path in (federation.kit(host)).glob(f"{job}/*log.txt")]
    hosts = [federation.kit(host) / "log.txt" for host in (SERVER, *SITES)]
    lines = [line for path in hosts for line in path.read_text().splitlines() if job in line]
    return "\n".join([*(path.read_text() for path in own), *lines])


APP = {"path": "flareclust.cli.app"}
ATTACKS = {
    "command line takes the policy away": APP
    | {"args": {"args": ["site", "policy", ".", "--remove"], "standalone_mode": False}},
    "command line opens the kit": APP | {"args": {"args": ["site", "allow", ".", "--byoc"], "standalone_mode": False}},
    "function of ours": {
        "path": "flareclust.privacy.site_file.remove_policy",
        "args": {"local": {"path": "flareclust.engines.workspace.Path"}},
    },
    "function in an argument": {
        "path": "flareclust.executors.lloyd.LloydExecutor",
        "args": {"k": APP | {"args": {"args": ["site", "policy", ".", "--remove"], "standalone_mode": False}}},
    },
    "code in a string": {"path": "flareclust.typing.sys.exit", "args": {}},
}


def test_a_site_calls_no_function_that_a_job_names(federation, tmp_path):
    for number, attack in enumerate(ATTACKS):
        job, _ = submit(federation, hand_made(tmp_path / str(number), client=ATTACKS[attack]))
        assert f"Component '{named(attack)}' at config path" in logs(federation, job), attack


def named(attack: str) -> str:
    """Return the class or function that an attack is after."""
    found = ATTACKS[attack]
    return found["args"]["k"]["path"] if attack == "function in an argument" else found["path"]


def test_a_server_calls_no_function_that_a_job_names(federation, tmp_path):
    args = {"args": ["site", "policy", ".", "--min-rows", "77"], "standalone_mode": False}
    _, told = submit(federation, hand_made(tmp_path / "job", server=APP | {"args": args}))
    assert "Component 'flareclust.cli.app' at config path" in told


def test_a_file_beside_the_configuration_is_refused_and_no_later_job_runs_it(federation, tmp_path):
    first, told = submit(federation, hand_made(tmp_path / "first", files={"config/extra.py": CODE}))
    kept = [path for host in (SERVER, *SITES) for path in (federation.kit(host) / first).rglob("*.py")]
    at_site, at_server = (
        {"path": "flareclust.registry.import_module", "args": {"name": f"{first}.app_{host}.config.extra"}}
        for host in ("north", "server")
    )
    submit(federation, hand_made(tmp_path / "second", client=at_site))
    submit(federation, hand_made(tmp_path / "third", server=at_server))
    assert marks(federation) == []
    assert kept == []
    assert "refuses the job for its file" in told
    assert "config/extra.py" in told


def test_no_class_of_nvflare_takes_a_file_out_of_a_site(federation, tmp_path):
    """South lets its log go to the server, which NVFlare does with any file of the job's folder: labels with ids."""
    streamer = {
        "path": "nvflare.app_common.logging.job_log_streamer.JobLogStreamer",
        "args": {"log_file_name": "labels.csv", "target_parent_server": True, "poll_interval": 0.01},
    }
    secret = re.compile(rf"{str(SECRET_ID)[:-3]}\d\d\d".encode())
    for identity, reason in (("attack", "is not in allow_list"), ("auto_log_streamer", "as log_file_name")):
        job, _ = submit(federation, hand_made(tmp_path / identity, client={"id": identity, **streamer}))
        at_server = [path for root in (federation.kit(SERVER), federation.folder / "tmp") for path in root.rglob("*")]
        assert [path for path in at_server if path.is_file() and secret.search(path.read_bytes())] == []
        assert reason in logs(federation, job)
