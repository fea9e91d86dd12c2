"""The engine for many small sites on one machine: what each computes is computed for thousands of them in one compiled loop.

The method of a step gets the rows of all devices at once, a chunk at a time (`flareclust.devices.rows`). A device with anything
out of the ordinary, which has to refuse or has too many rows for the loops, is asked by itself, as in the in-process engine; so is
every device in a step that is not computed for many. The results are those of the in-process engine, bit for bit, whatever the
number of threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message, never_abort
from flareclust.core.devices.ragged import Entries, Ragged, nothing_computed
from flareclust.core.runtime import one_thread
from flareclust.core.threads import allowed_threads
from flareclust.data.devices import Devices
from flareclust.devices.rows import answers_of_many
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, OnRound, run_federation
from flareclust.federation.batch_exchanges import BatchExchanges
from flareclust.federation.exchanges import Sampling
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol import batch as batches
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import Task

#: Devices that one compiled loop goes over.
CHUNK = 4096


def run_devices(
    algorithm: Algorithm,
    params: Mapping[str, object],
    devices: Devices,
    options: JobOptions,
    on_round: OnRound = lambda record: None,
    sampling: Sampling | None = None,
) -> Outcome:
    """Run a federation of many small sites in this process. Their rows get no labels, which would take as much memory.

    `sampling` says which of them each round has; None for all.

    Raises:
        JobFailed: as `flareclust.federation.run_federation`.
        UserError: a setting is wrong.
    """
    executor, aggregator = algorithm.build(options.k, options.seed, params)
    executor.check_sites(devices.names)
    aggregator.check_sites(devices.names)
    asking = _Asking(executor, devices)
    return run_federation(
        aggregator,
        asking.one_by_one,
        devices.names,
        FederationOptions.of(options),
        on_round=on_round,
        sampling=sampling,
        exchanging=partial(BatchExchanges, asking.many),
    )


class _Asking:
    """Carries tasks to the devices."""

    def __init__(self, executor: ClusteringExecutor, devices: Devices) -> None:
        self._executor, self._devices = executor, devices

    def one_by_one(self, step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        """Return the reply of each device."""
        return {name: self._one(Task(step, round_, arrays, name), self._devices[name]) for name in asked}

    def many(
        self, step: str, round_: int, arrays: Message, asked: Sequence[str]
    ) -> Iterator[tuple[batches.Part | None, Mapping[int, str]]] | None:
        """Return the replies of all devices in parts; None for a step that is not computed for many."""
        task, none = Task(step, round_, arrays, ""), np.zeros(0, dtype=np.int64)
        if answers_of_many(self._executor, task, self._devices.part_of(none)) is None:
            return None
        return self._parts(task, asked)

    def _parts(self, task: Task, asked: Sequence[str]) -> Iterator[tuple[batches.Part | None, Mapping[int, str]]]:
        everyone = len(asked) == len(self._devices)
        places = np.arange(len(asked)) if everyone else np.array([self._devices.places[name] for name in asked])
        chunks, workers = [places[first : first + CHUNK] for first in range(0, len(places), CHUNK)], allowed_threads()
        with one_thread(), ThreadPoolExecutor(workers) as pool:
            ahead = [pool.submit(self._computed, task, chunk) for chunk in chunks[: 2 * workers]]
            for number, first in enumerate(range(0, len(places), CHUNK)):
                devices, entries, seconds = ahead.pop(0).result()
                if number + 2 * workers < len(chunks):
                    ahead.append(pool.submit(self._computed, task, chunks[number + 2 * workers]))
                yield self._completed(task, first, asked, devices, entries, seconds)

    def _computed(self, task: Task, places: IntArray) -> tuple[Ragged, Entries, float]:
        """Return a chunk of devices, what they send, and how long each took."""
        devices, started = self._devices.part_of(places), perf_counter()
        entries = answers_of_many(self._executor, task, devices) or nothing_computed(devices.m)
        return devices, entries, (perf_counter() - started) / max(1, devices.m)

    def _completed(
        self, task: Task, first: int, asked: Sequence[str], devices: Ragged, entries: Entries, seconds: float
    ) -> tuple[batches.Part | None, dict[int, str]]:
        """Return what a chunk sends with the replies of the devices that are asked by themselves, and why others send none."""
        there = np.flatnonzero(entries.sizes >= 0)
        parts, problems = [], {}
        if len(there):
            totals = {name: value[there] for name, value in entries.totals.items()}
            parts.append(batches.Part(there + first, dict(entries.fields), totals, entries.sizes[there], seconds))
        singles: dict[int, Message] = {}
        for i in np.flatnonzero(entries.sizes < 0).tolist():
            name = asked[first + i]
            reply = self._one(Task(task.step, task.round, task.arrays, name), devices.rows(i))
            if reply.problem is None:
                singles[first + i] = reply.arrays
            else:
                problems[first + i] = reply.problem
        if singles:
            schema = self._executor.step(task.step).schema
            slowest = max(float(message.pop(SECONDS)) for message in singles.values())
            parts.append(batches.part_of(schema, list(singles), list(singles.values()), slowest))
        return (batches.merged(parts) if parts else None), problems

    def _one(self, task: Task, rows: FloatArray) -> SiteReply:
        own = Task(task.step, task.round, {name: value.copy() for name, value in task.arrays.items()}, task.site)
        try:
            return SiteReply(self._executor.answer(own, rows, never_abort).arrays)
        except (Refusal, BadMessage) as reason:
            return SiteReply(problem=str(reason))
