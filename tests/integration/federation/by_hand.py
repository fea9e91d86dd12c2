"""Jobs that a lead makes by hand, to have something done that no exported job does, and what they leave behind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import LEAD, Federation, submitted

from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job
from flareclust.protocol.registry import get

#: What the code of an attack writes into the folder that it runs in: the kit of its site.
MARK = "code_ran.txt"
CODE = f"from pathlib import Path\nPath({MARK!r}).write_text('as ' + __name__)\n"

#: An id among a site's rows, which is in its labels.
SECRET_ID = 987654321

_REMOVE = {"args": ["site", "policy", ".", "--remove"], "standalone_mode": False}

APP = {"path": "flareclust.cli.main.app"}

#: Components at the sites, by what they are after.
ATTACKS: Mapping[str, Mapping[str, Any]] = {
    "command line takes the policy away": APP | {"args": _REMOVE},
    "command line opens the kit": APP | {"args": {"args": ["site", "allow", ".", "--byoc"], "standalone_mode": False}},
    "function of ours": {
        "path": "flareclust.sites.policy_file.remove_policy",
        "args": {"local": {"path": "flareclust.sites.kit.Path"}},
    },
    "function in an argument": {
        "path": "flareclust.executors.lloyd.LloydExecutor",
        "args": {"k": APP | {"args": _REMOVE}},
    },
    "code in a string": {"path": "flareclust.cli.sweep.sys.exit", "args": {}},
}

#: A component at the server that writes a file there.
AT_SERVER = APP | {"args": {"args": ["site", "policy", ".", "--min-rows", "77"], "standalone_mode": False}}

#: A component that has NVFlare send a file of the job's folder to the server while it is written: labels with ids.
STREAMER = {
    "path": "nvflare.app_common.logging.job_log_streamer.JobLogStreamer",
    "args": {"log_file_name": "labels.csv", "target_parent_server": True, "poll_interval": 0.01},
}


def named(attack: str) -> str:
    """Return the class or function that an attack is after."""
    found = ATTACKS[attack]
    return str(found["args"]["k"]["path"] if attack == "function in an argument" else found["path"])


def importing(job: str, host: str) -> dict[str, Any]:
    """Return a component that imports a file which an earlier job has left at a host."""
    return {"path": "flareclust.protocol.registry.import_module", "args": {"name": f"{job}.app_{host}.config.extra"}}


def hand_made(
    folder: Path,
    options: JobOptions,
    *,
    client: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write an honest job with components added to one of its sides, and files to its app folder."""
    exported = export_job(build_job(get("lloyd"), {}, options), folder)
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
        job_id, fetched = submitted(session, job, federation.folder / "fetched")
        logs = [path.read_text() for path in fetched.rglob("*log.txt")]
        return job_id, "\n".join([json.dumps(session.get_job_meta(job_id)), *logs])


def files_of(federation: Federation) -> dict[Path, bytes]:
    """Return all files that say what jobs may do."""
    local = [path for host in federation.hosts for path in (federation.kit(host) / "local").rglob("*")]
    return {path: path.read_bytes() for path in local if path.is_file()}


def marks(federation: Federation) -> list[Path]:
    """Return what code of an attack has left."""
    return [path for host in federation.hosts for path in federation.kit(host).rglob(MARK)]
