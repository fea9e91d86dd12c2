"""What attacks are measured on: data sets assigned to sites, what the sites hold to, and what the server then hears."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.attacks.differencing import distinct, number_recovered, tapped
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray
from flareclust.data.datasets import load
from flareclust.data.partition import partition
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get


@dataclass(frozen=True)
class Federation:
    """A data set and how it is spread.

    Attributes:
        m: number of sites.
        k: number of clusters.
        bounds: between which all values lie, by what they are; for differential privacy.
    """

    m: int
    k: int
    bounds: tuple[float, float]


DATA = {
    "iris": Federation(3, 10, (0, 10)),
    "breast_cancer": Federation(5, 15, (0, 5000)),
    "digits": Federation(10, 10, (0, 16)),
    "s1": Federation(10, 15, (0, 1e6)),
}


@dataclass(frozen=True)
class Setting:
    """What the sites hold to: the job's settings, the sites' policy.

    Attributes:
        params: of the job.
        policy: of all sites; None for none.
        private: whether the policy has differential privacy with epsilon 1, and the job is of an algorithm that has it.
    """

    params: Mapping[str, Any]
    policy: Mapping[str, Any] | None = None
    private: bool = False

    def policy_for(self, data: str) -> Policy | None:
        """Return the sites' policy."""
        if self.private:
            bounds = list(DATA[data].bounds)
            return Policy.of({"differential_privacy": {"bounds": bounds, "epsilon": 1.0, "delta": 1e-5, "budget": 1.0}})
        return None if self.policy is None else Policy.of(self.policy)

    @property
    def secure_sums(self) -> bool:
        """Return whether the server gets totals only."""
        return bool((self.policy or {}).get("secure_sums"))

    @property
    def slack(self) -> int:
        """Return by how much numbers of rows may be wrong."""
        return int((self.policy or {}).get("round_counts", 1)) - 1


NAIVE = "nothing held back"

#: The settings that are compared, in the order of the table.
SETTINGS = {
    NAIVE: Setting({"min_count": 1}),
    "min_count=1": Setting({"min_count": 1}),
    "min_count=2": Setting({"min_count": 2}),
    "default policy": Setting({}, {}),
    "round_counts: 5": Setting({}, {"round_counts": 5}),
    "secure_sums": Setting({}, {"secure_sums": True}),
    "differential privacy": Setting({}, private=True),
}

#: Which algorithm does under differential privacy what another one does without.
PRIVATE = {"lloyd": "dp-lloyd", "pooled": "dp-oneshot"}


def sites_of(data: str, columns: slice = slice(None)) -> dict[str, FloatArray]:
    """Return the rows of a data set's sites, assigned at random."""
    dataset = load(data)
    X = np.ascontiguousarray(dataset.X[:, columns])
    parts = partition("iid", X, None, DATA[data].m, stream(0, 0, "partition"))
    return {site: X[rows] for site, rows in parts.items()}


def listen(name: str, data: str, sites: Mapping[str, FloatArray], k: int, setting: Setting, **params: Any) -> list[Any]:
    """Return what the server of a federation gets: (step, what it had sent, replies by name), round by round."""
    if setting.private:
        if name not in PRIVATE:
            return []
        name, params = PRIVATE[name], {}
    options = JobOptions(k=k, min_sites=1, secure_sums=setting.secure_sums)
    with tapped() as seen, suppress(JobFailed):  # no site would take part
        run_inprocess(get(name), {**params, **setting.params}, dict(sites), options, policy=setting.policy_for(data))
    return seen


def count(
    seen: list[Any], sites: Mapping[str, FloatArray], attack: Callable[[str], list[FloatArray]]
) -> dict[str, int]:
    """Return how many rows an attack on every name that the server heard claims, and how many are recovered."""
    pooled = np.concatenate(list(sites.values()))
    names = {name for _, _, replies in seen for name in replies}
    claims = {name: distinct(attack(name)) for name in sorted(names)}
    right = sum(number_recovered(found, sites.get(name, pooled)) for name, found in claims.items())
    counted = {"recovered": right, "claimed": sum(map(len, claims.values())), "rows": len(pooled)}
    return counted if seen else {**counted, "refused": 1}
