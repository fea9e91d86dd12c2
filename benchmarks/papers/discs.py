"""The table of covered clusters in docs/algorithms/dkmpp.md: distributed k-means++ on discs, beside the paper's bounds."""

import numpy as np

from benchmarks.papers.dkmpp_bounds import covered, mse_bound, uncovered_bound
from flareclust.aggregators.dkmpp import DKMPPAggregator
from flareclust.data.tables import Table
from flareclust.executors.dkmpp import DKMPPExecutor
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import StepName, Task


def user(r, rng):
    """Return the four means, and the seeds of a site with twenty rows in a disc about each."""
    means = r * np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    angle, radius = rng.uniform(0, 2 * np.pi, (4, 20)), np.sqrt(rng.uniform(size=(4, 20)))
    disc = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    site = DKMPPExecutor(4, min_count=1, seeds="rows", greedy=False)
    rows = SiteRows(Table((means[:, None] + disc).reshape(-1, 2)), rng, context=SiteContext(1))
    return means, site.local(Task(StepName.CLUSTER, 0, {}, "user"), rows)


rng = np.random.default_rng(0)
for r in (2.5, 4.5):
    users = [user(r, rng) for _ in range(8000)]
    means, D = users[0][0], r * 2**0.5
    hit = np.array([covered(reply["centroids"], means) for _, reply in users])
    for m in (1, 2, 3, 4, 8, 16):
        missed = 1 - hit[: len(hit) // m * m].reshape(-1, m, 4).any(axis=1).mean()
        errors = []
        for first in range(0, 500 * m, m):
            replies = {str(i): users[first + i][1] for i in range(m)}
            centroids = DKMPPAggregator(4).merge(Round(), replies, rng).task["centroids"]
            errors.append(((means[:, None] - centroids[None]) ** 2).sum(axis=2).min(axis=1))
        bound = mse_bound(4, m, r, 1, D, 0.5) / 0.5 if r >= 4 else float("nan")
        lemma = uncovered_bound(4, r, 1, D) ** m
        print(r, m, f"{missed:.5f} {(1 - hit.mean()) ** m:.5f} {lemma:.3f} {np.mean(errors) / 0.5:.2f} {bound:.0f}")
