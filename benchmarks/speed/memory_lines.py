"""What is measured of memory at the server, beside that of what it is handed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.speed.server_lines import line, outliers
from benchmarks.speed.server_measure import Trial
from flareclust._foundation.typing import Message
from flareclust.core import robust
from flareclust.core.missing.assessment import masked_metrics
from flareclust.federation import FederationOptions, run_federation
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply


def _outlier_memory(m: int, k: int, d: int) -> Trial:
    given = outliers(m, k, d)
    return Trial(lambda: robust.outlier_score(*given), lambda: np.empty(m * k * d), 1)


def _separations(k: int, d: int) -> Trial:
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(k, d))
    centroids[rng.random((k, d)) < 0.2] = np.nan
    sums = {"counts": np.ones(k, np.int64), "sse": np.ones(k), "silhouette": np.ones(k), "scatter": np.ones(k)}
    return Trial(lambda: masked_metrics(centroids, sums), lambda: np.empty((k, k + d)), 1)


def _replies(algorithm: str, m: int, k: int, d: int, **settings: Any) -> Trial:
    rng = np.random.default_rng(0)
    truth = rng.uniform(0, 10, (k, d))
    names, cluster = [f"site-{i:05d}" for i in range(m)], {"cluster": np.arange(k), "inertia": np.array(1.0)}

    def ask(step: str, round_: int, arrays: Message, sites: Sequence[str]) -> dict[str, SiteReply]:
        more = cluster if algorithm == "lloyd" else {}
        counts = np.full(k, 9)
        return {
            site: SiteReply({"centroids": truth + 0.1 * rng.normal(size=(k, d)), "counts": counts, **more})
            for site in sites
        }

    def ours() -> None:
        start = {"start": truth.tolist(), "rounds": 1} if algorithm == "lloyd" else {}
        run_federation(
            registry.get(algorithm).build(k, 0, settings | start)[1], ask, names, FederationOptions(assess=False)
        )

    return Trial(ours, lambda: np.empty((m, k, d + 1)))


LINES = (
    line(
        "outlier scores",
        "2,000 sites of 4 centroids, d = 16",
        "memory of the centroids",
        50,
        lambda: _outlier_memory(2000, 4, 16),
        memory=True,
    ),
    *(
        line(
            f"replies of a round, {name}",
            "10,000 sites, d = 64, k = 16",
            "memory of the replies",
            2.5,
            lambda name=name, more=more: _replies(name, 10_000, 16, 64, **more),
            memory=True,
        )
        for name, more in (("lloyd", {}), ("pooled", {"restarts": 1}))
    ),
    line(
        "distances of centroids with gaps",
        "k = 300, d = 500",
        "memory of (k, k + d)",
        6,
        lambda: _separations(300, 500),
        memory=True,
    ),
)
