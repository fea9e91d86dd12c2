"""Attacks on provisioned sites: by a server whose process is another program, and by a lead with jobs made by hand."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.case import PROCESSES, Case, Found, Run, number, recovered
from benchmarks.attacks.federation import Attacked
from benchmarks.attacks.in_process import GROUPS, MALICIOUS, SAME_GROUPS
from benchmarks.attacks.victim import rows_of
from flareclust._foundation.typing import FloatArray
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName

VICTIM = "north"


def two_sites() -> dict[str, FloatArray]:
    """Return two sites of 1,500 rows each."""
    rows = rows_of("s1", 3000)
    return {VICTIM: rows[:1500], "south": rows[1500:]}


class Shared:
    """Federations that several attacks use, made when the first one needs them."""

    def __init__(self) -> None:
        self._made: dict[str, Attacked] = {}

    def malicious(self) -> Attacked:
        """Return the federation of two sites with a malicious server and the default policy."""
        return self._get("two", lambda: Attacked(two_sites(), malicious=True, policy={}))

    def honest(self) -> Attacked:
        """Return the federation of two sites with an honest server; one site lets its log go to the server."""
        return self._get("honest", lambda: Attacked(two_sites(), malicious=False, policy={}, streams="south"))

    def masked(self) -> Attacked:
        """Return the federation of four sites that let out sums masked only, over all four."""
        rows = np.array_split(rows_of("s1", 3000), 4)
        sites = dict(zip((VICTIM, "south", "east", "west"), rows, strict=True))
        return self._get(
            "four", lambda: Attacked(sites, malicious=True, policy={"secure_sums": True, "secure_min_sites": 4})
        )

    def relayed(self) -> Attacked:
        """Return the federation of two sites, one of them behind a relay, with a malicious server and the default policy."""
        relays = {"relay": ["south"]}
        return self._get("relayed", lambda: Attacked(two_sites(), malicious=True, policy={}, relays=relays))

    def _get(self, name: str, make: Any) -> Attacked:
        if name not in self._made:
            self.close()  # one at a time: each has a process per site and job
            self._made[name] = make()
        return self._made[name]

    def close(self) -> None:
        """Stop them."""
        for attacked in self._made.values():
            attacked.federation.close()
        self._made.clear()


SHARED = Shared()


@contextmanager
def federations() -> Iterator[None]:
    """Stop in the end what attacks have started."""
    try:
        yield
    finally:
        SHARED.close()


def _by_server(attack: str, algorithm: str, exchanges: int, second: str | None = None, **params: Any) -> Run:
    def run(fast: bool) -> list[Found]:
        attacked = SHARED.malicious()
        options = JobOptions(k=int(params.get("k", 2)), min_sites=2, task_timeout=120)
        own = {key: value for key, value in params.items() if key != "k"} | {"min_count": 1}
        orders = {"attack": attack, "victim": VICTIM, "d": 2, "exchanges": exchanges}

        def once() -> tuple[FloatArray, Mapping[str, Any]]:
            job = attacked.exported(algorithm, options=options, **own)
            if second is not None:
                _listed_as_well(job, second, options.k)
            return attacked.server_asks(job, **orders)

        before = attacked.files()
        claims, heard = once()
        found = attacked.found(
            before, claims, f"{heard['answers']} answers, {heard['refused']} refusals", None, [VICTIM]
        )
        with attacked.without_policy():
            free, _ = once()
        return [replace(found, control=recovered(list(free), attacked.rows[VICTIM]))]

    return run


def _listed_as_well(job: Path, algorithm: str, k: int) -> None:
    """Have a job list the executor of another algorithm for the step `cluster`, before its own."""
    file = job / "app" / "config" / "config_fed_client.json"
    config = json.loads(file.read_text())
    for entry in config["executors"]:
        entry["tasks"] = [task for task in entry["tasks"] if task != StepName.CLUSTER]
    other = {"path": get(algorithm).executor, "args": {"k": k, "min_count": 1}}
    config["executors"].insert(0, {"tasks": [StepName.CLUSTER], "executor": other})
    file.write_text(json.dumps(config))


def _secure_sums(fast: bool) -> list[Found]:
    attacked = SHARED.masked()
    others = [site for site in attacked.sites if site != VICTIM]
    startups = {site: str(attacked.federation.kit(site) / "startup") for site in others}
    found = []
    for accomplices in (0, 1, 2):
        orders = {
            "attack": "secure sums", "victim": VICTIM, "d": 2, "exchanges": 25, "others": others,
            "accomplices": others[:accomplices], "startups": startups,
        }  # fmt: skip
        before = attacked.files()
        four = JobOptions(k=2, min_sites=4, secure_sums=True, task_timeout=120)
        claims, heard = attacked.server_asks(attacked.exported("lloyd", options=four, min_count=1), **orders)
        control = None
        if accomplices == 2:
            with attacked.without_policy():
                three = JobOptions(k=2, min_sites=3, secure_sums=True, task_timeout=120)
                free, _ = attacked.server_asks(attacked.exported("lloyd", options=three, min_count=1), **orders)
            control = recovered(list(free), attacked.rows[VICTIM])
        asked = f"{number(accomplices, 'accomplice')}, {number(heard['answers'], 'answer')}, {number(heard['refused'], 'refusal')}"
        found.append(attacked.found(before, claims, asked, control, [VICTIM]))
    return found


CASES = [
    Case("server-places", "`score` of `pooled`: sums of distances from chosen places, least squares per group",
         MALICIOUS, PROCESSES, "274 of 1,500", GROUPS, _by_server("places", "pooled", 6, k=125)),
    Case("server-borders", "a border between two centroids of its choice moves across the rows; the answers are subtracted",
         MALICIOUS, PROCESSES, "not measured", SAME_GROUPS, _by_server("borders", "lloyd", 100)),
    Case("server-two", "two executors in a job: `fkm` for `cluster`, `lloyd` for `update`; the answers are subtracted", "lead and server",
         PROCESSES, "20 of 1,500", "nothing is remembered, and both see the same groups", _by_server("two executors", "lloyd", 100, second="fkm", k=15)),
    Case("server-sums", "masked sums of four sites: small tables of keys, keys of its own, no keys",
         MALICIOUS + ", with accomplices", PROCESSES, "one accomplice and three keys were enough",
         "every site checks how many and which sites a sum is of", _secure_sums),
]  # fmt: skip
