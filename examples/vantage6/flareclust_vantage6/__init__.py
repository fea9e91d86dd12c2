"""A vantage6 algorithm that clusters with flareclust: vantage6 carries the messages, flareclust computes them.

`central` runs where the user's organisation has its node, and creates a task of `partial` for each question to each organisation.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from vantage6.algorithm.client import AlgorithmClient
from vantage6.algorithm.tools.decorators import algorithm_client, data

from flareclust._foundation import version
from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import Message
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.federation import run_federation
from flareclust.privacy.policy import read_policy
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task
from flareclust_vantage6.messages import pack, unpack

#: What runs here: algorithms without keys, budgets or networks, which live in a site's kit.
ALGORITHMS = ("lloyd", "pooled", "kfed")

#: The environment variable that names the policy of a node, set in the node's own configuration (`algorithm_env`).
POLICY = "FLARECLUST_POLICY"


@algorithm_client
def central(
    client: AlgorithmClient,
    algorithm: str,
    k: int,
    columns: Sequence[str],
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    organizations: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Cluster the rows of the organisations of the collaboration.

    Args:
        client: vantage6's.
        algorithm, k, seed, params: as of `flareclust.run`.
        columns: of the nodes' tables, in their order.
        organizations: numbers of those asked; None for all of the collaboration.

    Returns:
        `arrays`, of which `messages.unpack` makes the result's arrays; `centroids` as lists; metrics, warnings, and who was
        left out and why.

    Raises:
        UserError: a setting is wrong.
        JobFailed: too few organisations answered, or no centroid could be found.
    """
    _, aggregator = registry.get(algorithm).build(k, seed, params or {})
    numbers = [one["id"] for one in client.organization.list()] if organizations is None else organizations
    sites = {str(number): number for number in numbers}
    job = {"algorithm": algorithm, "k": k, "seed": seed, "params": dict(params or {}), "version": aggregator.version()}

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        question = {"job": job, "columns": list(columns), "step": step, "round": round_, "arrays": pack(arrays)}
        input_ = {"method": "partial", "kwargs": question}
        # A task for each organisation, as vantage6 does not say which of them a result is of.
        tasks = {site: client.task.create(input_=input_, organizations=[sites[site]], name=step) for site in asked}
        return {site: _reply(client.wait_for_results(task_id=task["id"])) for site, task in tasks.items()}

    found = run_federation(aggregator, ask, list(sites))
    about = {"metrics": dict(found.metrics), "warnings": found.warnings, "left_out": dict(found.refused)}
    return {"arrays": pack(found.arrays), "centroids": found.centroids.tolist(), **about}


def _reply(results: Sequence[Any]) -> SiteReply:
    """Return what a task of one organisation brought."""
    result = results[0] if results else None
    if not isinstance(result, dict):
        return SiteReply(problem="failed; the log of its node says why")
    if "problem" in result:
        return SiteReply(problem=str(result["problem"]))
    try:
        return SiteReply(unpack(result.get("arrays")))
    except BadMessage as reason:
        return SiteReply(problem=f"sent what {reason}")


@algorithm_client
@data(1)
def partial(
    df: pd.DataFrame, client: AlgorithmClient, job: Mapping[str, Any], columns: Sequence[str], **question: Any
) -> dict[str, str]:
    """Answer one step of an algorithm from a node's rows, or say why not.

    The text of an unexpected exception may hold rows' values, and vantage6 sends a container's log to its server: it is dropped.
    """
    try:
        return {"arrays": pack(_answer(df, str(client.organization_id), job, columns, **question))}
    except (Refusal, BadMessage, UserError) as reason:
        return {"problem": str(reason)}
    except Exception as error:  # noqa: BLE001 - its text may hold values
        return {
            "problem": f"raised {type(error).__name__}; run the algorithm on its rows there with vantage6's mock client"
        }


def _answer(
    df: pd.DataFrame,
    site: str,
    job: Mapping[str, Any],
    columns: Sequence[str],
    *,
    step: str,
    round: int,
    arrays: str,
) -> Message:
    name = job["algorithm"]
    if name not in ALGORITHMS:
        raise Refusal(f"runs {', '.join(ALGORITHMS)} only")
    algorithm = registry.get(name)
    executor, _ = algorithm.build(job["k"], job["seed"], job["params"])
    if not version.fits(job["version"], executor.version()):
        raise Refusal(version.misfit(job["version"], executor.version()))
    policy = os.environ.get(POLICY)
    own = None if policy is None else SimulatedSite.of(read_policy(policy), algorithm)
    return answered(executor, Task(step, round, unpack(arrays), site), rows_of(df, columns), own).arrays


def rows_of(df: pd.DataFrame, columns: Sequence[str]) -> Table:
    """Return the rows (n, d) of a node's table; Refusal where it lacks a column, or one holds something else than numbers."""
    if missing := [name for name in columns if name not in df.columns]:
        raise Refusal(f"has no column {', '.join(map(repr, missing))}")
    if text := [name for name in columns if not pd.api.types.is_numeric_dtype(df[name])]:
        raise Refusal(f"has other values than numbers in {', '.join(map(repr, text))}")
    return Table(df[list(columns)].to_numpy(dtype=np.float64), tuple(columns))
