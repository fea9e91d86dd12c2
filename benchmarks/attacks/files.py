"""Anyone with a kit asks NVFlare's process at a site for the file with its rows, and to remove folders of its kit."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.case import PROCESSES, Case, Found, Run
from benchmarks.attacks.federation import Attacked, from_tests
from benchmarks.attacks.processes import SHARED, VICTIM
from flareclust._foundation.typing import FloatArray
from flareclust.data.labels import LABELS_FILE
from flareclust.engines.options import JobOptions
from flareclust.privacy.job_folder import REQUEST_LOG_FILE

#: What a site keeps of a job.
_KEPT = (LABELS_FILE, REQUEST_LOG_FILE, "log.txt")

STOPS = "the server passes on nothing between kits; sites answer what jobs need"


def _asking(cell_of: Callable[[Attacked], AbstractContextManager[Any]]) -> Run:
    def run(fast: bool) -> list[Found]:
        attacked = SHARED.honest()
        file = attacked.federation.kit(VICTIM) / "data" / "rows.csv"
        np.savetxt(file, attacked.rows[VICTIM], fmt="%.17g", delimiter=",")
        before = attacked.files()
        with cell_of(attacked) as cell:
            claims = _read(cell, file)
        return [attacked.found(before, claims, "4 requests", None, [VICTIM])]

    return run


def _read(cell: Any, file: Path) -> list[FloatArray]:
    """Return the rows of a file, where the site sends it; ask it, too, to remove its policy, in the server's name as well."""
    from tests.watching import ask_site, in_the_name_of_the_server

    text = []
    for asked_by in (lambda: None, lambda: in_the_name_of_the_server(cell)):
        asked_by()
        text.append(ask_site(cell, VICTIM, "sys.shell", f"cat {file}") or "")
        ask_site(cell, VICTIM, "train.delete_run", job="local")
    lines = [line.split(",") for line in "\n".join(text).splitlines()]
    return [np.array(line, dtype=float) for line in lines if len(line) == 2 and line[0][:1].isdigit()]


def as_user(name: str) -> Callable[[Attacked], AbstractContextManager[Any]]:
    """Return what gives the cell of a user's session; the harness says who the name is."""

    def cell_of(attacked: Attacked) -> AbstractContextManager[Any]:
        from_tests()
        import harness
        import kit_cells

        return kit_cells.as_user(attacked.federation, getattr(harness, name))

    return cell_of


def as_site(attacked: Attacked) -> AbstractContextManager[Any]:
    """Give a cell that the server takes for the site south."""
    from_tests()
    import kit_cells

    return kit_cells.as_site(attacked.federation, "south")


def as_relay(attacked: Attacked) -> AbstractContextManager[Any]:
    """Give a cell that the server takes for the relay."""
    from_tests()
    import kit_cells

    return kit_cells.as_relay(attacked.federation, "relay")


def _finished_jobs(fast: bool) -> list[Found]:
    """Have a server ask for three finished jobs of a site; return how many of the site's files are not what they were."""
    from_tests()
    from harness import wait_until

    attacked = SHARED.malicious()
    kit, options = attacked.federation.kit(VICTIM), JobOptions(k=2, min_sites=2, task_timeout=120)
    attacked.orders.write_text(json.dumps({"attack": "none"}), encoding="utf-8")
    known = set(kit.iterdir())
    for _ in range(3):
        attacked.federation.run(attacked.exported("kfed", options=options))
    jobs = sorted(path for path in kit.iterdir() if path not in known and (path / LABELS_FILE).exists())
    before = {path: path.read_bytes() for job in jobs for path in map(job.joinpath, _KEPT)}
    files = attacked.files()
    orders = {"attack": "finished jobs", "victim": VICTIM, "jobs": list(map(str, jobs)), "d": 2}
    _, heard = attacked.server_asks(attacked.exported("kfed", options=options), **orders)

    def lost() -> list[Path]:
        return [path for path, content in before.items() if not path.exists() or path.read_bytes() != content]

    with suppress(TimeoutError):  # a process that is started takes a while to write
        wait_until(lambda: {path.parent for path in lost()} == set(jobs), "all jobs are touched", 30.0)
    found = attacked.found(files, [], f"{heard['answers']} answers, {heard['refused']} refusals")
    title = "labels, records of requests and logs of 3 finished jobs"
    return [replace(found, sites=title, recovered=len(lost()), rows=len(before), unit="files lost or changed")]


CASES = [
    Case("files-lead", "NVFlare's process at a site is asked to send the file with its rows, and to remove its policy", "lead",
         PROCESSES, "1,500 of 1,500, policy gone", STOPS, _asking(as_user("LEAD"))),
    Case("files-member", "the same", "user without rights", PROCESSES, "1,500 of 1,500, policy gone", STOPS, _asking(as_user("MEMBER"))),
    Case("files-site", "the same", "site, malicious", PROCESSES, "1,500 of 1,500, policy gone", STOPS, _asking(as_site)),
    Case("finished-jobs", "sites are asked to delete a finished job, to unpack one anew, and to start one again", "server, malicious",
         PROCESSES, "6 of 9, a job started again (d86f16bc)", "sites delete nothing, and take no job whose folder exists", _finished_jobs),
]  # fmt: skip
