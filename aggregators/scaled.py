"""The server's side of scaled columns: location and spread of all sites' columns first, and the result in their units.

An algorithm's own `begin`, `merge` and records do not know of it: tasks get the scaling on their way out, and lose it on
their way in.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.rounds import HISTORY
from flareclust.core.scaling import pooled_spread
from flareclust.executors.parameters import ScaledParams
from flareclust.executors.scaled import SCALING
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.protocol.task import SCALES

#: What is kept of the sites' own columns, where their replies come one by one: names (m,), means and deviations (m, d).
SCALED_SITES, SITE_MEANS, SITE_DEVIATIONS = "scaled_sites", "site_means", "site_deviations"


class ScaledAggregator(ClusteringAggregator):
    """A server that has columns scaled where the job says so."""

    params: ScaledParams

    @property
    def _scales(self) -> bool:
        """Return whether columns are scaled here; the variants of an algorithm for different columns have `standardize`."""
        return SCALES in self.steps and self.params.scale != "none"

    def first(self) -> Round:
        """Return the first exchange: the columns' location and spread, or that of the algorithm."""
        return Round(step=SCALES) if self._scales else super().first()

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round in scaled units; the scaling goes with every task."""
        if round_.step == SCALES:
            scaling, record = _scaling(replies)
            begun = self.begin()
            return replace(begun, task={**begun.task, **scaling}, record={**begun.record, **record})
        if not self._scales:
            return super().advance(round_, replies)
        after = super().advance(_without(round_), replies)
        return _with(after, round_)

    def so_far(self, round_: Round) -> Round | None:
        """Return the best solution so far, with the scaling."""
        if not self._scales:
            return super().so_far(round_)
        found = super().so_far(_without(round_))
        return None if found is None else _with(found, round_)

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, the centroids in the data's units."""
        arrays = super().result(round_)
        if not self._scales:
            return arrays
        back = {
            name: arrays[name] * arrays["deviation"] + arrays["mean"]
            for name in ("centroids", HISTORY)
            if name in arrays
        }
        return arrays | back


def _without(round_: Round) -> Round:
    return replace(round_, task={name: value for name, value in round_.task.items() if name not in SCALING.fields})


def _with(after: Round, before: Round) -> Round:
    """Return a round with the scaling of the one before, and what was kept of the sites."""
    scaling = {name: before.task[name] for name in SCALING.fields}
    kept = {name: before.record[name] for name in (SCALED_SITES, SITE_MEANS, SITE_DEVIATIONS) if name in before.record}
    return replace(after, task={**after.task, **scaling}, record={**kept, **after.record})


def _scaling(replies: Mapping[str, Message]) -> tuple[Message, Message]:
    """Return what tasks carry, and what is kept of the sites; of a total there is nothing to keep."""
    groups = [reply for reply in replies.values() if len(reply["counts"])]
    if not groups:
        raise JobFailed("no site has enough rows to disclose the means of its columns; leave out scale")
    rows = np.array([float(reply["counts"][0]) for reply in groups])
    means, m2 = (np.concatenate([reply[name] for reply in groups]) for name in ("centroids", "m2"))
    spread = pooled_spread(rows, means, m2)
    deviation = spread.deviation
    if ((deviation > 0) & (deviation < LEAST_DEVIATION)).any():
        raise JobFailed(
            f"the standard deviation of a column is below {LEAST_DEVIATION:g}; give such columns in a smaller unit, or leave them out"
        )
    scaling = {"mean": spread.mean, "deviation": np.where(deviation > 0, deviation, 1.0)}
    if len(replies) < 2:
        return scaling, {}
    names = np.array([site for site, reply in replies.items() if len(reply["counts"])])
    return scaling, {SCALED_SITES: names, SITE_MEANS: means, SITE_DEVIATIONS: np.sqrt(m2 / rows[:, None])}
