"""The server's side: flareclust's run of a federation, whose questions Flower carries to the SuperNodes."""

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp

from flareclust import JobFailed, UserError, __version__
from flareclust._foundation.typing import Message as Arrays
from flareclust.engines.other_frameworks import make_job
from flareclust.federation import FederationOptions, run_federation
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.replies import SiteReply
from flareclust_flower.messages import PROBLEM, pack, unpack

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm that the run's configuration names, and write its result."""
    config = context.run_config
    job = {name: config[name] for name in ("algorithm", "k", "seed")} | {"params": json.loads(str(config["params"]))}
    found = cluster(grid, **job, min_sites=int(config["min-sites"]), timeout=float(config["timeout"]))
    folder = Path(str(config["out"])).absolute()
    folder.mkdir(parents=True)
    outcome_files.write(found, folder, {**job, "flareclust": __version__, "columns": None})
    print(f"{job['algorithm']}: {len(found.centroids)} centroids of {len(found.sites)} sites; files: {folder}")
    for site, reason in found.refused.items():
        print(f"left out: {site} {reason}")
    for warning in found.warnings:
        print(f"warning: {warning}")


def cluster(
    grid: Grid,
    algorithm: str,
    k: int,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    min_sites: int = 2,
    timeout: float = 600,
) -> Outcome:
    """Run a federation over the SuperNodes that are connected.

    Args:
        grid: Flower's.
        algorithm, k, seed, params: as of `flareclust.run`.
        min_sites: so many SuperNodes are waited for, and a round needs so many.
        timeout: seconds for them to connect, and for each of their answers.

    Raises:
        UserError: a setting is wrong, or two SuperNodes have one name.
        JobFailed: too few sites are there, or no centroid could be found.
    """
    aggregator, job = make_job(algorithm, k, seed, params)
    nodes = nodes_by_site(grid, min_sites, timeout)
    about = job | {"params": json.dumps(job["params"])}
    ask = partial(_ask, grid, nodes, about, timeout)
    return run_federation(aggregator, ask, list(nodes), FederationOptions(min_sites=min_sites))


def nodes_by_site(grid: Grid, needed: int, timeout: float) -> dict[str, int]:
    """Return the number of each site's SuperNode; JobFailed where fewer than `needed` are connected in time."""
    deadline = time.monotonic() + timeout
    while len(ids := list(grid.get_node_ids())) < needed:
        if time.monotonic() > deadline:
            raise JobFailed(
                f"{len(ids)} SuperNodes are connected where min-sites={needed} are needed; start the others"
            )
        time.sleep(0.5)  # Flower has no event for a SuperNode that connects
    asked = [Message(pack({}), dst_node_id=node, message_type="query") for node in ids]
    nodes: dict[str, int] = {}
    for reply in grid.send_and_receive(asked, timeout=timeout):
        if reply.has_error():
            continue
        site = str(unpack(reply.content)[1]["site"])
        if site in nodes:
            raise UserError(f"two SuperNodes are called {site!r}; give each a name of its own in --node-config (site)")
        nodes[site] = reply.metadata.src_node_id
    return nodes


def _ask(
    grid: Grid,
    nodes: Mapping[str, int],
    about: Mapping[str, str | int],
    timeout: float,
    step: str,
    round_: int,
    arrays: Arrays,
    sites: Sequence[str],
) -> dict[str, SiteReply]:
    """Carry one question to the sites; return the answers that came in time."""
    content = pack(arrays, **about, step=step, round=round_)
    asked = [Message(content, dst_node_id=nodes[site], message_type="train") for site in sites]
    names = {nodes[site]: site for site in sites}
    replies = grid.send_and_receive(asked, timeout=timeout)
    return {names[reply.metadata.src_node_id]: _reply(reply) for reply in replies}


def _reply(reply: Message) -> SiteReply:
    if reply.has_error():
        return SiteReply(problem=f"failed (Flower's error {reply.error.code}); the log of its SuperNode says why")
    try:
        arrays, about = unpack(reply.content)
    except (KeyError, ValueError, TypeError):
        return SiteReply(problem="sent something that is no message of this app")
    return SiteReply(arrays, _problem(about))


def _problem(about: ConfigRecord) -> str | None:
    return str(about[PROBLEM]) if PROBLEM in about else None
