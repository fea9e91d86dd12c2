"""What a seed stands for: a few jobs, and what happens to whom while they run."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

SERVER, SITES = "server", ("east", "north", "west")

#: What can happen to a host, with the weight of each, for a site and for the server.
FAULTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "kill": (3, 1),  # the process of a job, as for want of memory
        "restart": (2, 2),  # all processes at once, started again at once; of the server its parent and jobs
        "power cut": (2, 0),  # all processes and the link at once, started again after a while
        "pause": (2, 1),  # all processes stop, and go on after a while
        "cut": (2, 1),  # the link is down for a while; nobody is told
        "reset": (1, 1),  # every connection ends with a reset
        "slow": (2, 1),  # 1 Mbit/s, up to 300 ms of delay, and one packet in twenty late by a second, for a while
        "clock": (1, 1),  # the wall clock jumps by up to two hours, and back after a while
        "full disk": (2, 1),  # nothing can be written to the kit's disk for a while
    }
)

#: Further ones, of seeds from this one on, so that those before stand for what they stood for.
LATER, LATER_FROM = (
    MappingProxyType({"slow disk": (2.0, 2.0)}),
    300,
)  # each write to the kit's disk takes up to a quarter of a second

#: The longest that a fault lasts, and the latest that one begins, in seconds.
LONGEST, LATEST = 40.0, 14.0

#: Jobs, by name: the algorithm, its settings, and whether sums are masked. Noise and PyTorch repeat no bits in another process, so
#: `dp-lloyd`, `dp-oneshot`, `dp-gmm` and `deepfeca` are not among them.
JOBS: Mapping[str, tuple[str, Mapping[str, object], bool]] = MappingProxyType(
    {
        "lloyd": ("lloyd", {"rounds": 30, "tol": 0.0}, False),
        "lloyd, secure sums": ("lloyd", {"rounds": 20, "tol": 0.0}, True),
        "fkm": ("fkm", {"rounds": 30, "tol": 0.0}, False),
        "portfolio": ("portfolio", {}, False),
        "pooled": ("pooled", {}, False),
        "feca": ("feca", {}, False),
        "kfed": ("kfed", {}, False),
        "minibatch": ("minibatch", {}, False),
        "portfolio, secure sums": ("portfolio", {}, True),
        "fkm, secure sums": ("fkm", {"rounds": 30, "tol": 0.0}, True),
        "gmm": ("gmm", {"rounds": 30}, False),
        "gmm, secure sums": ("gmm", {"rounds": 20}, True),
        "tree": ("tree", {}, False),
        "kprototypes": ("kprototypes", {}, False),
        "dkmpp": ("dkmpp", {}, False),
        "mavg": ("mavg", {}, False),
        "ffcm": ("ffcm", {}, False),
        "masked": ("masked", {}, False),
        "proxy": ("proxy", {}, False),
        "fkm-common": ("fkm-common", {}, False),
        "fkm-imputed": ("fkm-imputed", {}, False),
    }
)

#: Seeds before this one choose among the first kinds of job only, so that they stand for what they stood for.
ALL_JOBS_FROM, FIRST_JOBS = 310, 8


def commit() -> str:
    """Return the commit of this checkout, for records; empty outside one."""
    command, here = ["git", "describe", "--always", "--dirty", "--exclude", "*"], Path(__file__).parent
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=False).stdout.strip()


@dataclass(frozen=True)
class Fault:
    """What happens to a host, from when on and for how long, in seconds after the jobs were submitted.

    `size` of [0, 1) says how much of it: of the delay of a slow link or disk, and of the jump of a clock (from -2 h to 2 h).
    """

    kind: str
    host: str
    start: float
    seconds: float
    size: float

    def __str__(self) -> str:
        lasting = "" if self.kind in ("kill", "restart", "reset") else f" for {self.seconds:.1f} s"
        return f"{self.kind} {self.host} at {self.start:.1f} s{lasting}"


@dataclass(frozen=True)
class Schedule:
    """Jobs that are submitted at once, and the faults in the order of their starts."""

    seed: int
    jobs: tuple[str, ...]
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int) -> "Schedule":
        """Return the schedule that a seed stands for: one or two jobs, and one to three faults."""
        rng = np.random.default_rng(seed)
        kinds_of_job = list(JOBS)[: FIRST_JOBS if seed < ALL_JOBS_FROM else None]
        jobs = rng.choice(kinds_of_job, size=int(rng.integers(1, 3)), replace=False).tolist()
        possible = {**FAULTS, **(LATER if seed >= LATER_FROM else {})}
        kinds, weights = list(possible), np.array(list(possible.values())).T
        faults = []
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            at_server = rng.random() < 0.25
            host = SERVER if at_server else str(rng.choice(SITES))
            own = weights[int(at_server)]
            kind = str(rng.choice(kinds, p=own / own.sum()))
            start, seconds = float(rng.uniform(0, LATEST)), float(rng.uniform(1, LONGEST))
            faults.append(Fault(kind, host, start, seconds, float(rng.random())))
        return cls(seed, tuple(jobs), tuple(sorted(faults, key=lambda fault: fault.start)))

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts to which anything happens."""
        return frozenset(fault.host for fault in self.faults)
