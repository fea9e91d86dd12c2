"""Servers that keep what they get and send, or lie about keys, for tests with real processes. NVFlare copies this module."""

import json
from pathlib import Path

import numpy as np
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader

from flareclust.platform.controller import ClusteringController
from flareclust.privacy.secure_aggregation.masking import KEYS_ARRAY, KeyTable, SiteMasks

WATCHED, ASKED = "watched.npz", "asked.json"


class WatchingController(ClusteringController):
    """Writes every array of every message into its result: "step/round/task/name" and "step/round/site/name"."""

    def _ask(self, step, round_, arrays, sites, fl_ctx, abort_signal):
        replies = super()._ask(step, round_, arrays, sites, fl_ctx, abort_signal)
        seen = self.__dict__.setdefault("seen", {})
        for who, message in {"task": arrays, **{site: reply.arrays for site, reply in replies.items()}}.items():
            seen |= {f"{step}/{round_}/{who}/{name}": value for name, value in message.items()}
        folder = Path(fl_ctx.get_workspace().get_result_root(fl_ctx.get_job_id()))
        np.savez(folder / WATCHED, allow_pickle=False, **seen)
        return replies


class ThreesController(ClusteringController):
    """Asks for sums over the first three sites of the table only, as a server with two accomplices among them would."""

    def _ask(self, step, round_, arrays, sites, fl_ctx, abort_signal):
        table = KeyTable.of(arrays)
        if table is not None:
            arrays = {**arrays, **table.only(sorted(table.keys)[:3]).sent()}
        return super()._ask(step, round_, arrays, sites, fl_ctx, abort_signal)


class ForgetfulController(ClusteringController):
    """Asks for sums without keys in a job with secure sums."""

    def _ask(self, step, round_, arrays, sites, fl_ctx, abort_signal):
        arrays = {name: value for name, value in arrays.items() if name != KEYS_ARRAY}
        return super()._ask(step, round_, arrays, sites, fl_ctx, abort_signal)


class LyingController(ClusteringController):
    """Hands out a key of its own under the name of the site south, to read what the others share with it."""

    def _ask(self, step, round_, arrays, sites, fl_ctx, abort_signal):
        table = KeyTable.of(arrays)
        if table is not None:
            arrays = {**arrays, **KeyTable({**table.keys, "south": SiteMasks("south").public}).sent()}
            assert KEYS_ARRAY in arrays
        return super()._ask(step, round_, arrays, sites, fl_ctx, abort_signal)


def ask_site(cell, site, topic, body="", job=""):
    """Ask NVFlare's process at a site, as its server does; return the answer's text, None where there is no answer."""
    message = Message(topic, body)
    if job:
        message.set_header(RequestHeader.JOB_ID, job)
    request = new_cell_message({}, message)
    reply = cell.send_request(CellChannel.CLIENT_MAIN, topic, site, request, timeout=3.0)
    return getattr(reply.payload, "body", None)


def in_the_name_of_the_server(cell):
    """Have a cell state the server as the origin of all that it asks from now on."""
    cell.core_cell.add_outgoing_request_filter("*", "*", lambda m: m.set_header(MessageHeaderKey.ORIGIN, "server"))


class ReadingController(ClusteringController):
    """Asks NVFlare's processes at the sites for their files, and to remove the folder with their policies."""

    def _ask(self, step, round_, arrays, sites, fl_ctx, abort_signal):
        cell = fl_ctx.get_engine().get_cell()
        folder = Path(fl_ctx.get_workspace().get_result_root(fl_ctx.get_job_id()))
        if not (folder / ASKED).exists():
            reported = {}
            for site in sites:
                reported[f"{site} shell"] = ask_site(cell, site, "sys.shell", "cat local/flareclust.yaml")
                reported[f"{site} remove"] = ask_site(cell, site, "train.delete_run", job="local")
                reported[f"{site} status"] = ask_site(cell, site, "train.check_status")
            (folder / ASKED).write_text(json.dumps(reported))
        return super()._ask(step, round_, arrays, sites, fl_ctx, abort_signal)
