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

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import Message
from flareclust.data.ids import Ids, Withdrawn, as_texts
from flareclust.data.tables import Table
from flareclust.engines.other_frameworks import answer_task, make_job
from flareclust.federation import run_federation
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task
from flareclust_vantage6.messages import pack, unpack

#: The environment variables of a node's own configuration (`algorithm_env`): the file of its policy, the file with the ids of
#: withdrawn rows, and the column with ids.
POLICY, WITHDRAWN, ID = "FLARECLUST_POLICY", "FLARECLUST_WITHDRAWN", "FLARECLUST_ID"


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
    aggregator, job = make_job(algorithm, k, seed, params)
    numbers = [one["id"] for one in client.organization.list()] if organizations is None else organizations
    sites = {str(number): number for number in numbers}

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
        reply = _answer(df, str(client.organization_id), job, columns, **question)
    except Exception as error:  # noqa: BLE001 - its text may hold values
        return {
            "problem": f"raised {type(error).__name__}; run the algorithm on its rows there with vantage6's mock client"
        }
    return {"arrays": pack(reply.arrays)} if reply.problem is None else {"problem": reply.problem}


def _answer(
    df: pd.DataFrame, site: str, job: Mapping[str, Any], columns: Sequence[str], *, step: str, round: int, arrays: str
) -> SiteReply:
    try:
        task = Task(step, round, unpack(arrays), site)
    except BadMessage as reason:
        return SiteReply(problem=str(reason))
    own = os.environ.get(POLICY), os.environ.get(WITHDRAWN)
    return answer_task(job, task, lambda gaps, gone: rows_of(df, columns, gone), *own)


def rows_of(df: pd.DataFrame, columns: Sequence[str], gone: Withdrawn) -> Table:
    """Return the rows (n, d) of a node's table; Refusal where it lacks a column, or one holds something else than numbers."""
    if missing := [name for name in columns if name not in df.columns]:
        raise Refusal(f"has no column {', '.join(map(repr, missing))}")
    if text := [name for name in columns if not pd.api.types.is_numeric_dtype(df[name])]:
        raise Refusal(f"has other values than numbers in {', '.join(map(repr, text))}")
    X = df[list(columns)].to_numpy(dtype=np.float64)
    if not gone:
        return Table(X, tuple(columns))
    out = gone.look(_ids_of(df))
    return Table(X, tuple(columns), withdrawn=out) if gone.marked else Table(X[~out], tuple(columns))


def _ids_of(df: pd.DataFrame) -> Ids:
    """Return the ids of a node's rows; Refusal where they have none."""
    name, ids = os.environ.get(ID), Ids()
    if name not in df.columns:
        raise Refusal(f"leaves out rows by their ids, and no column has them; name it in {ID} of its algorithm_env")
    try:
        ids.extend(as_texts(df[name].to_numpy(), "its table", 1))
    except UserError:  # whose text has the place of a row
        raise Refusal("leaves out rows by their ids, which must be text or integers, one in every row") from None
    return ids
