"""The site's side: a SuperNode answers the steps of an algorithm from its own rows.

The SuperNode's own configuration names the site, its rows and its policy, never the run:

    flower-supernode --insecure --node-config 'site="north" rows="/secure/north.csv" policy="/secure/policy.yaml"'

A simulated SuperNode, which has none of these, has a few made-up rows.
"""

import json
import logging
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from flareclust._foundation import version
from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.typing import Message as Arrays
from flareclust.data.tables import Table
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.privacy.policy import read_policy
from flareclust.protocol import registry
from flareclust.protocol.task import Task
from flareclust.sites.rows import SiteData
from flareclust_flower.messages import PROBLEM, pack, unpack

#: What the app runs: algorithms without keys, budgets or networks, which live in a site's kit.
ALGORITHMS = ("lloyd", "pooled", "kfed")

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
        arrays, about = unpack(message.content)
        return Message(pack(_answer(arrays, about, context)), reply_to=message)
    except (Refusal, BadMessage, UserError) as reason:
        problem = str(reason)
    except Exception as error:  # noqa: BLE001 - its text may hold values, and Flower sends it to the server
        _log.exception("the step raised an exception")
        problem = f"raised {type(error).__name__}; the log of its SuperNode has the traceback"
    return Message(pack({}, **{PROBLEM: problem}), reply_to=message)


def _answer(arrays: Arrays, about: ConfigRecord, context: Context) -> Arrays:
    name = str(about["algorithm"])
    if name not in ALGORITHMS:
        raise Refusal(f"runs {', '.join(ALGORITHMS)} only")
    algorithm = registry.get(name)
    executor, _ = algorithm.build(int(about["k"]), int(about["seed"]), json.loads(str(about["params"])))
    if not version.fits(str(about["version"]), executor.version()):
        raise Refusal(version.misfit(str(about["version"]), executor.version()))
    task = Task(str(about["step"]), int(about["round"]), arrays, site_of(context))
    policy = context.node_config.get("policy")
    site = None if policy is None else SimulatedSite.of(read_policy(str(policy)), algorithm)
    return answered(executor, task, rows_of(context, gaps=bool(executor.gaps)), site).arrays


def site_of(context: Context) -> str:
    """Return the name of a SuperNode's site."""
    config = context.node_config
    return str(config["site"]) if "site" in config else f"site-{config['partition-id']}"


def rows_of(context: Context, *, gaps: bool = False) -> FloatArray | Table:
    """Return a SuperNode's rows; Refusal where they cannot be used."""
    config = context.node_config
    if "rows" in config:
        return SiteData(Path(str(config["rows"]))).table(gaps=gaps)
    if "partition-id" not in config:
        raise Refusal("has no rows: its --node-config names none (rows)")
    return made_up_rows(int(config["partition-id"]))


def made_up_rows(partition: int) -> FloatArray:
    """Return the rows (90, 2) of a simulated site: three clusters of 30 rows."""
    rng = np.random.default_rng(partition)
    return np.concatenate([rng.normal(center, 1.0, (30, 2)) for center in (5.0, 15.0, 25.0)])
