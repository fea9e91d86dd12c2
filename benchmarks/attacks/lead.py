"""A lead with jobs of configuration only, made by hand: honest sites with the policy of their kits, and an honest server."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.attacks.case import PROCESSES, Case, Found, Run, recovered
from benchmarks.attacks.federation import Attacked, from_tests
from benchmarks.attacks.processes import SHARED
from flareclust._foundation.typing import FloatArray
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import read

OPTIONS = JobOptions(k=15, min_sites=2, task_timeout=120)


def _components(attacked: Attacked) -> None:
    from by_hand import ATTACKS, hand_made, submit

    for attack, component in ATTACKS.items():
        submit(attacked.federation, hand_made(_folder(attacked, attack), OPTIONS, client=component))


def _at_server(attacked: Attacked) -> None:
    from by_hand import AT_SERVER, hand_made, submit

    submit(attacked.federation, hand_made(_folder(attacked, "server"), OPTIONS, server=AT_SERVER))


def _file_beside(attacked: Attacked) -> None:
    from by_hand import CODE, hand_made, importing, submit

    sent = hand_made(_folder(attacked, "file"), OPTIONS, files={"config/extra.py": CODE})
    first, _ = submit(attacked.federation, sent)
    for side, host in (("client", attacked.sites[0]), ("server", attacked.server)):
        made = hand_made(_folder(attacked, f"import-{side}"), OPTIONS, **{side: importing(first, host)})
        submit(attacked.federation, made)


def _folder(attacked: Attacked, name: str) -> Path:
    attacked.jobs += 1
    return Path(attacked.federation.folder) / "jobs" / f"{attacked.jobs}-{name.replace(' ', '-')}"


def rows_asked_for(attacked: Attacked) -> list[FloatArray]:
    """Return all that an honest server receives in a job that asks for rows as seeds; nothing where it is refused."""
    every = JobOptions(k=1500, min_sites=2, task_timeout=120)  # as many as a site has
    job = attacked.exported("dkmpp", options=every, seeds="rows", min_count=1)
    folder = attacked.federation.run(job)
    if not (folder / "result.npz").exists():
        return []
    outcome, _ = read(folder)
    return [row for array in outcome.arrays.values() if array.ndim == 2 and array.shape[1] == 2 for row in array]


def _after(*steps: str, control: bool = False) -> Run:
    """Return a case's function: these jobs, and then one that asks for rows."""

    def run(fast: bool) -> Sequence[Found]:
        from_tests()
        attacked = SHARED.honest()
        before = attacked.files()
        for step in steps:
            _JOBS[step](attacked)
        changed = attacked.files()
        claims = rows_asked_for(attacked)
        found = attacked.found(before, claims, f"{attacked.jobs} jobs")
        if control:  # what the policies that it is after are there for
            with attacked.without_policy():
                free = recovered(rows_asked_for(attacked), np.concatenate(list(attacked.rows.values())))
            found = replace(found, control=free)
        for path in {*before, *changed}:  # as they were, so that each attack is seen by itself
            path.write_bytes(before[path]) if path in before else path.unlink()
        attacked.jobs = 0
        return [found]

    return run


_JOBS = {"components": _components, "server": _at_server, "file": _file_beside}


def _streamed(fast: bool) -> Sequence[Found]:
    """Have NVFlare's streamer of logs send the labels, under two names; ids that reach the server count as rows."""
    from_tests()
    from by_hand import SECRET_ID, STREAMER, hand_made, submit

    attacked = SHARED.honest()
    before, federation = attacked.files(), attacked.federation
    secret = re.compile(rf"{str(SECRET_ID)[:-4]}\d\d\d\d".encode())
    for identity in ("attack", "auto_log_streamer"):
        submit(federation, hand_made(_folder(attacked, identity), OPTIONS, client={"id": identity, **STREAMER}))
    at_server = [
        path for root in (federation.kit(attacked.server), federation.folder / "tmp") for path in root.rglob("*")
    ]
    ids = {one for path in at_server if path.is_file() for one in secret.findall(path.read_bytes())}
    found = attacked.found(before, [], "2 jobs")
    return [replace(found, recovered=len(ids))]


CASES = [
    Case("lead-functions", "a component `flareclust.cli.main.app` takes the policies away, or opens the kits; the same nested in an argument; "
         "then `dkmpp` with `seeds=rows`, `min_count=1`",
         "lead", PROCESSES, "1,500 of 1,500, policies gone", "jobs can name listed classes only, and no function", _after("components", control=True)),
    Case("lead-server", "the same at the server, which would write a file", "lead", PROCESSES, "files written",
         "jobs can name listed classes only, and no function", _after("server")),
    Case("lead-file", "a file beside the configuration; later jobs import it with `flareclust.protocol.registry.import_module`", "lead", PROCESSES,
         "code ran at the site", "a job is its configuration", _after("file")),
    Case("lead-streamer", "NVFlare's `JobLogStreamer` sends `labels.csv` to the server", "lead", PROCESSES, "labels and ids of all rows",
         "not among the listed classes", _streamed),
]  # fmt: skip
