"""What a malicious server does in place of a job's workflow: it asks sites what it likes, and keeps what it claims.

The sites are honest, and so is the job that they are given. Which attack it is, a file says that `ORDERS` names.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.admin_defs import Message as Request
from nvflare.private.admin_defs import MsgHeader, ReturnCode
from nvflare.private.defs import ERROR_MSG_PREFIX, RequestHeader, TrainingTopic
from nvflare.private.scheduler_constants import ShareableHeader

from benchmarks.attacks import echoes, server
from benchmarks.attacks.accomplices import Coalition, tables
from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.federation.refinement import UPDATE
from flareclust.platform.controller import ClusteringController
from flareclust.privacy.secure_aggregation.identity import Identity
from flareclust.privacy.secure_aggregation.masking import SiteMasks

#: Names the file with the orders, in the environment.
ORDERS = "FLARECLUST_ATTACK_ORDERS"

#: What the server writes beside its other results.
CLAIMS = "claims.npz"
HEARD = "heard.json"

ATTACKS = {"borders": server.borders, "places": server.places, "two executors": server.two_executors}

_HONEST = ClusteringController.control_flow


def take_over() -> None:
    """Have jobs of this process do what the orders say."""
    ClusteringController.control_flow = _control_flow  # type: ignore[method-assign]


class Line:
    """The line to the sites of a job, which counts what goes over it."""

    def __init__(self, controller: ClusteringController, fl_ctx: FLContext, abort_signal: Signal) -> None:
        self._controller, self._fl_ctx, self._abort = controller, fl_ctx, abort_signal
        self.round = self.answers = 0
        self.refusals: list[str] = []

    def ask(self, site: str, step: str, arrays: Message, round_: int) -> Message:
        """Return what a site answers; Refusal where it sends no arrays."""
        replies = self._controller._ask(step, round_, arrays, [site], self._fl_ctx, self._abort)
        reply = replies.get(site)
        if reply is None or reply.problem is not None:
            self.refusals.append("no answer" if reply is None else str(reply.problem))
            raise Refusal(self.refusals[-1])
        self.answers += 1
        return reply.arrays

    def next(self, site: str, step: str, arrays: Message) -> Message | None:
        """Return what a site answers in the next round, None where it refuses."""
        self.round += 1
        try:
            return self.ask(site, step, arrays, self.round)
        except Refusal:
            return None


def _control_flow(self: ClusteringController, abort_signal: Signal, fl_ctx: FLContext) -> None:
    orders = json.loads(Path(os.environ[ORDERS]).read_text(encoding="utf-8"))
    if orders["attack"] == "none":
        return _HONEST(self, abort_signal, fl_ctx)
    line = Line(self, fl_ctx, abort_signal)
    attack, victim, d = orders["attack"], orders["victim"], orders["d"]
    came: list[str] = []
    if attack == "secure sums":
        claims = _of_sums(line, orders, str(fl_ctx.get_job_id()))
    elif attack == "answers":
        claims, came = [], _files(line, orders, fl_ctx)
    elif attack == "finished jobs":
        claims = _of_finished_jobs(line, fl_ctx.get_engine().get_cell(), orders)
    else:
        claims = ATTACKS[attack](lambda step, arrays: line.next(victim, step, arrays), d, orders["exchanges"])
    folder = Path(fl_ctx.get_workspace().get_result_root(fl_ctx.get_job_id()))
    np.savez(folder / CLAIMS, allow_pickle=False, claims=np.array(claims).reshape(-1, d))
    heard = {"answers": line.answers, "refusals": line.refusals[:20], "refused": len(line.refusals), "came": came}
    (folder / HEARD).write_text(json.dumps(heard), encoding="utf-8")


def _of_sums(line: Line, orders: dict[str, Any], job: str) -> list[FloatArray]:
    """Ask for sums over small tables and all of them, with keys of accomplices and of the server's own, and without."""
    victim, others, friends = orders["victim"], orders["others"], orders["accomplices"]
    startups = {site: Path(orders["startups"][site]) for site in friends}
    strangers = [site for site in others if site not in friends]
    masks = {site: SiteMasks(site, Identity.of(startups[site]), job) for site in friends}
    forged = {site: SiteMasks(site, None, job) for site in strangers}  # keys that nobody has signed
    coalition = Coalition(
        victim, lambda step, arrays, round_: line.ask(victim, step, arrays, round_), masks | forged, orders["d"]
    )
    claims: list[FloatArray] = []
    for table in [*tables(friends, strangers), others]:
        claims += coalition.rows(table, orders["exchanges"])
    line.round = 10_000  # rounds only go up
    claims += server.borders(lambda step, arrays: line.next(victim, step, arrays), orders["d"], orders["exchanges"])
    return claims


def _files(line: Line, orders: dict[str, Any], fl_ctx: FLContext) -> list[str]:
    """Ask sites, their jobs, relays and sessions for files, and put one into tasks; return the names of those that came."""
    secrets = {name: Path(path).read_bytes()[: echoes.ENOUGH] for name, path in orders["files"].items()}
    cell, job = fl_ctx.get_engine().get_cell(), fl_ctx.get_job_id()
    with echoes.overheard(cell) as pieces:
        for target, names in orders["targets"].items():
            for name in names:
                line.answers += echoes.ask(cell, target.format(job=job), orders["files"][name], "server")
        for site, names in orders["tasks"].items():
            for name in names:
                with echoes.in_tasks(orders["files"][name]):
                    line.next(site, UPDATE, {"centroids": np.zeros((1, orders["d"]))})
    return echoes.came(pieces, secrets)


def _of_finished_jobs(line: Line, cell: Cell, orders: dict[str, Any]) -> list[FloatArray]:
    """Ask a site to delete the first of its finished jobs, to unpack the second anew, and to start the third again."""
    site, (deleted, unpacked, started) = orders["victim"], map(Path, orders["jobs"])
    packed = zip_directory_to_bytes(str(unpacked / f"app_{site}"), "")
    reserved = _asked(cell, site, TrainingTopic.CHECK_RESOURCE, started, {}).body
    key = ShareableHeader.RESOURCE_RESERVE_TOKEN
    for reply in (
        _asked(cell, site, TrainingTopic.DELETE_RUN, deleted, ""),
        _asked(cell, site, TrainingTopic.DEPLOY, unpacked, packed),
        _asked(cell, site, TrainingTopic.START_JOB, started, {}, {key: reserved.get_header(key)}),
    ):
        if reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR or str(reply.body).startswith(ERROR_MSG_PREFIX):
            line.refusals.append(str(reply.body))
        else:
            line.answers += 1
    return []


def _asked(
    cell: Cell, site: str, topic: str, job: Path, body: object, headers: dict[str, Any] | None = None
) -> Request:
    """Return what NVFlare's process at a site answers to a request about the job with this folder."""
    request = Request(topic, body)
    meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
    about = {RequestHeader.JOB_ID: job.name, RequestHeader.JOB_META: meta, RequestHeader.APP_NAME: "app"}
    request.set_headers({**about, **(headers or {})})
    message = new_cell_message({}, request)
    return cell.send_request(CellChannel.CLIENT_MAIN, topic, site, message, timeout=30.0).payload
