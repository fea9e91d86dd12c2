"""The site's side: a SuperNode answers the steps of an algorithm from its own rows.

The SuperNode's own configuration names the site, its rows and its policy, never the run:

    flower-supernode --insecure --node-config 'site="north" rows="/secure/north.csv" policy="/secure/policy.yaml"'

With `id="patient" withdrawn="/secure/gone.txt"` the rows with the ids in this file are left out. A simulated SuperNode, which has none of these, has a few made-up rows.
"""

import json
import logging
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray
from flareclust.data.ids import Withdrawn
from flareclust.data.tables import Table
from flareclust.engines.other_frameworks import answer_task
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task
from flareclust.sites.rows import SiteData
from flareclust_flower.messages import PROBLEM, pack, unpack

_log = logging.getLogger(__name__)

app = ClientApp()


@app.query()
def name(message: Message, context: Context) -> Message:
    """Return the name of the site, from which its random streams follow."""
    return Message(pack({}, site=site_of(context)), reply_to=message)


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Answer one step of an algorithm, or say why not; the text of an unexpected exception stays in the site's own log."""
    try:
        reply = _answer(message, context)
    except Exception as error:  # noqa: BLE001 - its text may hold values, and Flower sends it to the server
        _log.exception("the step raised an exception")
        reply = SiteReply(problem=f"raised {type(error).__name__}; the log of its SuperNode has the traceback")
    problem = {} if reply.problem is None else {PROBLEM: reply.problem}
    return Message(pack(reply.arrays, **problem), reply_to=message)


def _answer(message: Message, context: Context) -> SiteReply:
    arrays, about = unpack(message.content)
    job = {**about, "params": json.loads(str(about["params"]))}
    task = Task(str(about["step"]), int(about["round"]), arrays, site_of(context))
    policy, withdrawn = (context.node_config.get(name) for name in ("policy", "withdrawn"))
    return answer_task(job, task, lambda gaps, gone: rows_of(context, gone, gaps=gaps), policy, withdrawn)


def site_of(context: Context) -> str:
    """Return the name of a SuperNode's site."""
    config = context.node_config
    return str(config["site"]) if "site" in config else f"site-{config['partition-id']}"


def rows_of(context: Context, gone: Withdrawn, *, gaps: bool = False) -> FloatArray | Table:
    """Return a SuperNode's rows; Refusal where they cannot be used."""
    config = context.node_config
    if "rows" in config:
        data = SiteData(Path(str(config["rows"])), id=config.get("id"), withdrawn=gone.ids)
        return data.table(gaps=gaps, marked=gone.marked)
    if "partition-id" not in config or gone:
        raise Refusal("has no rows: its --node-config names none (rows)")
    return made_up_rows(int(config["partition-id"]))


def made_up_rows(partition: int) -> FloatArray:
    """Return the rows (90, 2) of a simulated site: three clusters of 30 rows."""
    rng = np.random.default_rng(partition)
    return np.concatenate([rng.normal(center, 1.0, (30, 2)) for center in (5.0, 15.0, 25.0)])
