"""A lead's jobs of configuration whose settings name environment variables of the processes at sites and server."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks.case import PROCESSES, Case, Found
from benchmarks.attacks.federation import SECRETS, Attacked, from_tests
from benchmarks.attacks.processes import SHARED
from flareclust.engines.options import JobOptions

OPTIONS = JobOptions(k=3, min_sites=2, task_timeout=120)


def _named(names: Sequence[str]) -> str:
    return " ".join(f"{{${name}}}" for name in names)


def _job(attacked: Attacked, side: str, part: str, **settings: object) -> Path:
    """Write an honest job with settings added to one of its sides."""
    job = attacked.exported("lloyd", options=OPTIONS)
    file = job / "app" / "config" / f"config_fed_{side}.json"
    config = json.loads(file.read_text())
    component = config[part][0]
    component.get("executor", component)["args"].update(settings)
    file.write_text(json.dumps(config))
    return job


def _read(attacked: Attacked, job: Path) -> str:
    """Submit a job; return all text about it that its lead can get."""
    from harness import LEAD, submitted

    with attacked.federation.session(LEAD) as session:
        job_id, folder = submitted(session, job, attacked.federation.folder / "fetched")
        own = [path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file()]
        return "\n".join([json.dumps(session.get_job_meta(job_id)), *own])


def _run(fast: bool) -> list[Found]:
    from_tests()
    attacked = SHARED.honest()
    before = attacked.files()
    at_sites, at_server = SECRETS[:2], SECRETS[2:]
    texts = [
        _read(attacked, _job(attacked, "client", "executors", table_schema=_named(at_sites))),
        _read(attacked, _job(attacked, "server", "workflows", params={"note": _named(at_server)})),
    ]
    wanted = [attacked.secret(site, name) for site in attacked.sites for name in at_sites]
    wanted += [attacked.secret(attacked.server, name) for name in at_server]
    text = "\n".join(texts)
    came = sum(value in text for value in wanted)
    found = attacked.found(before, [], "2 jobs")
    title = "2 sites with 2 variables each, the server with 1"
    return [Found(title, came, len(wanted), "2 jobs", None, found.changed, found.ran, "variables")]


CASES = [
    Case("lead-variables", "settings of a job name environment variables of the processes that run it; refusals and results are read",
         "lead", PROCESSES, "5 of 5 (0.2.0)", "no string of a job may hold what NVFlare would resolve, and processes of jobs get listed variables only", _run),
]  # fmt: skip
