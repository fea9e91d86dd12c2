"""Requests whose answers would hold files: of members of the federation to the server, and of the server to all others."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.attacks import echoes
from benchmarks.attacks.case import PROCESSES, Case, Found, Run
from benchmarks.attacks.federation import Attacked, from_tests
from benchmarks.attacks.files import as_relay, as_site, as_user
from benchmarks.attacks.in_process import MALICIOUS
from benchmarks.attacks.processes import SHARED
from flareclust.engines.options import JobOptions

#: A session as `flareclust` opens it, which says the name of its cell and stays until its input ends.
_SESSION = """
import sys
from pathlib import Path
from flareclust.platform.session import open_session
with open_session(Path(sys.argv[1])) as session:
    print(session.api.cell.get_fqcn(), flush=True)
    sys.stdin.read()
"""

#: What NVFlare's process of a job at the server logs when it takes messages.
_STARTED = "Server runner starting"

STOPS = "messages hold no files"


def _found(
    attacked: Attacked, before: Mapping[Path, bytes], came: Sequence[str], files: Sequence[str], asked: int
) -> Found:
    found = attacked.found(before, [], "")
    return Found(
        " and ".join(files), len(came), len(files), f"{asked} requests", None, found.changed, found.ran, "files"
    )


def _of_server(cell_of: Callable[[Attacked], AbstractContextManager[Any]], name: str) -> Run:
    """Return the attack of a member of the federation on an honest server: its parent process, and that of a job."""

    def run(fast: bool) -> Sequence[Found]:
        from_tests()
        attacked = SHARED.honest()
        before = attacked.files()
        with cell_of(attacked) as cell, _running(attacked) as job:
            asked, came = _asked(attacked, cell, name, ("server", f"server.{job}"))
        return [_found(attacked, before, came, ["the server's private key"], asked)]

    return run


def _by_relay(fast: bool) -> Sequence[Found]:
    """Let a relay ask the server, whose parent process is an honest one here."""
    from_tests()
    attacked = SHARED.relayed()
    before = attacked.files()
    with as_relay(attacked) as cell:
        asked, came = _asked(attacked, cell, "relay", ("server",))
    return [_found(attacked, before, came, ["the server's private key"], asked)]


def _asked(attacked: Attacked, cell: Any, name: str, targets: Sequence[str]) -> tuple[int, list[str]]:
    """Ask processes of the server for its key; return how often, and the names of the files that came."""
    key = attacked.federation.kit(attacked.server) / "startup" / "server.key"
    with echoes.overheard(cell) as pieces:
        asked = sum(echoes.ask(cell, target, str(key), name) for target in targets)
        return asked, echoes.came(pieces, {"key": key.read_bytes()[: echoes.ENOUGH]})


@contextmanager
def _running(attacked: Attacked) -> Iterator[str]:
    """Give the id of an honest job whose process at the server answers, for as long as one of its sites does not go on."""
    from harness import wait_until
    from processes import job_of_kit

    one, site = JobOptions(k=15, min_sites=1, task_timeout=200), attacked.federation.kit("north")
    with attacked.federation.session() as session:
        job = str(session.submit_job(str(attacked.exported("lloyd", options=one))))
        try:
            wait_until(lambda: job_of_kit(site), "the job's process at the site starts", every=0.02)
            for process in job_of_kit(site):
                process.suspend()
            log = attacked.federation.kit(attacked.server) / job / "log.txt"
            wait_until(lambda: log.exists() and _STARTED in log.read_text(), "the job's process at the server answers")
            yield job
        finally:
            session.abort_job(job)
            for process in job_of_kit(site):
                process.resume()
            session.wait_for_job(job, timeout=200, poll_interval=0.25)


def _of_all(fast: bool) -> Sequence[Found]:
    """Let a malicious server ask sites, their jobs, a relay and a lead's session, and put requests into tasks."""
    from_tests()
    from harness import LEAD

    attacked = SHARED.relayed()
    kit, before = attacked.federation.kit, attacked.files()
    files = {f"{site}'s {what}": kit(site) / path for site in attacked.sites for what, path in _OF_SITES.items()}
    files |= {
        "the relay's key": kit("relay") / "startup" / "client.key",
        "the lead's key": kit(LEAD) / "startup" / "client.key",
    }
    of = {site: [name for name in files if name.startswith(site)] for site in attacked.sites}
    with _session(kit(LEAD)) as session:
        targets = {
            "north": of["north"],
            "relay.south": of["south"],
            "relay": ["the relay's key"],
            session: ["the lead's key"],
        }
        targets |= {"north.{job}": of["north"], "relay.south.{job}": of["south"]}
        orders = {"files": {name: str(path) for name, path in files.items()}, "targets": targets, "tasks": of}
        job = attacked.exported("lloyd", options=JobOptions(k=2, min_sites=2, task_timeout=20))
        _, heard = attacked.server_asks(job, attack="answers", victim="north", d=2, **orders)
    return [_found(attacked, before, heard["came"], list(files), heard["answers"] + sum(map(len, of.values())))]


_OF_SITES = {"key": "startup/client.key", "1,500 rows": "data/rows.npz"}


@contextmanager
def _session(kit: Path) -> Iterator[str]:
    """Give the name of the cell of a lead's session in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(kit)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        guard = threading.Timer(300, process.kill)
        guard.start()
        try:
            yield process.stdout.readline().strip()
        finally:
            guard.cancel()
            process.stdin.close()


CASES = [
    Case("answers-member", "requests to the server, in its own process and in that of a job, whose answers would hold its private key", "user without rights",
         PROCESSES, "1 of 1 (d86f16bc)", STOPS, _of_server(as_user("MEMBER"), "member")),
    Case("answers-lead", "the same", "lead", PROCESSES, "1 of 1 (d86f16bc)", STOPS, _of_server(as_user("LEAD"), "lead")),
    Case("answers-site", "the same", "site, malicious", PROCESSES, "1 of 1 (d86f16bc)", STOPS, _of_server(as_site, "south")),
    Case("answers-relay", "the same, in the server's own process", "relay, malicious", PROCESSES, "not measured", STOPS, _by_relay),
    Case("answers-server", "requests and tasks for two sites, one of them behind a relay, for the relay and for the session of a lead, whose answers would hold their files",
         MALICIOUS, PROCESSES, "6 of 6 (d86f16bc)", STOPS, _of_all),
]  # fmt: skip
