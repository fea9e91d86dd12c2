"""Both sides of a run whose messages another framework carries: what the server tells the sites, and a site's answer (docs/other-frameworks.md)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flareclust._foundation import version
from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import FloatArray
from flareclust.data.ids import Withdrawn
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.privacy.policy import read_policy
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task
from flareclust.sites.withdrawn import ids_in

#: Algorithms without keys, budgets or networks, which live in a site's kit.
ALGORITHMS = ("lloyd", "pooled", "kfed")

#: Gives a site's rows; its arguments are whether cells may be missing, and the withdrawn ids.
_ReadRows = Callable[[bool, Withdrawn], FloatArray | Table]


def make_job(
    algorithm: str, k: int, seed: int = 0, params: Mapping[str, Any] | None = None
) -> tuple[ClusteringAggregator, dict[str, Any]]:
    """Return the server's side of an algorithm, for `flareclust.federation.run_federation`, and the job that `answer_task` takes at the sites.

    Args:
        algorithm: one of `ALGORITHMS`.
        k, seed, params: as of `flareclust.run`.

    Returns:
        The aggregator, and a JSON object that the framework carries to the sites with every task.

    Raises:
        UserError: the algorithm is another one, or a setting is wrong.
    """
    if algorithm not in ALGORITHMS:
        raise UserError(f"{algorithm!r} runs over NVFlare only; over other frameworks take {', '.join(ALGORITHMS)}")
    params = dict(params or {})
    _, aggregator = registry.get(algorithm).build(k, seed, params)
    job = {"algorithm": algorithm, "k": k, "seed": seed, "params": params, "version": aggregator.version()}
    return aggregator, job


def answer_task(
    job: Mapping[str, Any],
    task: Task,
    read_rows: _ReadRows,
    policy: str | Path | None = None,
    withdrawn: str | Path | None = None,
) -> SiteReply:
    """Return what a site answers to one task of a job: arrays, or a problem in words that may leave the site.

    Any other exception, such as of `read_rows`, is raised as it is; its text may hold values of rows and must stay at the site.

    Args:
        job: of `make_job`.
        task: what the server asks this site.
        read_rows: gives the rows (n, d) without the withdrawn ones, or a table in which they are marked where `Withdrawn.marked` says
            so. It may raise Refusal or UserError, whose text leaves the site.
        policy: file with the site's policy, None without. Each task meets a new session: what a policy counts over a job does not hold.
        withdrawn: file with the ids of withdrawn rows, one a line, None without.
    """
    try:
        if job["algorithm"] not in ALGORITHMS:
            raise Refusal(f"runs {', '.join(ALGORITHMS)} only")
        algorithm = registry.get(job["algorithm"])
        executor, _ = algorithm.build(int(job["k"]), int(job["seed"]), job["params"])
        needed, own = str(job["version"]), executor.version()
        if not version.fits(needed, own):
            raise Refusal(version.misfit(needed, own))
        site = None if policy is None else SimulatedSite.of(read_policy(policy), algorithm)
        ids = frozenset(() if withdrawn is None else ids_in(Path(withdrawn)))
        rows = read_rows(bool(executor.gaps), Withdrawn(ids, marked=site is not None))
        return SiteReply(answered(executor, task, rows, site).arrays)
    except (Refusal, BadMessage, UserError) as reason:
        return SiteReply(problem=str(reason))
