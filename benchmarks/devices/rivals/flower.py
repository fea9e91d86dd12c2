"""Flower's simulation of the work: run by Flower's own interpreter, `python -m benchmarks.devices.rivals.flower FILE M WORKERS OUT`.

The time of a round is from the first message to the merged result, in Flower's process and those of Ray. What starts
these processes and loads the kernels there is measured apart: the first round of a few devices is not counted.
"""

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Ray's processes give one another half a minute to start, which does not suffice on a busy machine.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")

import json
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from benchmarks.devices.rivals.processes import Clock
from benchmarks.devices.rivals.work import START, WORK, rows_of, versions
from flareclust._foundation.typing import FloatArray

#: Devices of the round before the measured ones.
FIRST = 40


def client_app(file: Path) -> ClientApp:
    """Return what each device runs."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        i = int(context.node_config["partition-id"])
        local, _ = WORK[str(message.content["task"]["work"])]
        reply = local(rows_of(file, i), i, message.content["sent"].to_numpy_ndarrays()[0])
        arrays = ArrayRecord({name: Array(np.ascontiguousarray(value)) for name, value in reply.items()})
        return Message(RecordDict({"reply": arrays, "device": ConfigRecord({"number": i})}), reply_to=message)

    return app


def one_round(grid: Grid, nodes: Sequence[int], work: str) -> FloatArray:
    """Ask these devices and merge what they send, in the order of their numbers."""
    content = RecordDict({"sent": ArrayRecord([START]), "task": ConfigRecord({"work": work})})
    asked = [Message(content, dst_node_id=node, message_type="train") for node in nodes]
    replies = {}
    for reply in grid.send_and_receive(asked):
        sent = reply.content
        replies[sent["device"]["number"]] = {name: array.numpy() for name, array in sent["reply"].items()}
    assert len(replies) == len(nodes)
    return WORK[work][1]([replies[i] for i in sorted(replies)])


def measure(grid: Grid, context: Context, *, m: int, turns: int, clock: Clock, out: Path) -> None:
    """Wait for all devices, and measure each kind of work."""
    while len(nodes := list(grid.get_node_ids())) < m:
        time.sleep(0.05)
    for work in WORK:
        one_round(grid, nodes[:FIRST], work)
    start, lines, found = clock.since(), [], {}
    for work in WORK:
        for _ in range(turns):
            before = Clock()
            found[work] = one_round(grid, nodes, work)
            lines.append({"work": work, **before.since()})
    np.savez(out.with_suffix(".npz"), **found)
    about = {"start": start, "lines": lines, "versions": versions("flwr", "ray", "numpy", "protobuf", "grpcio")}
    out.write_text(json.dumps(about))


def main(file: Path, m: int, workers: int, turns: int, out: Path) -> None:
    server, clock = ServerApp(), Clock()
    server.main()(partial(measure, m=m, turns=turns, clock=clock, out=out))
    ray = {"address": "local", "num_cpus": workers, "include_dashboard": False, "logging_level": "ERROR"}
    try:
        run_simulation(
            server,
            client_app(file),
            num_supernodes=m,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": ray},
        )
    except RuntimeError:
        traceback.print_exc()
        os._exit(1)  # the server's thread waits for replies that never come


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
