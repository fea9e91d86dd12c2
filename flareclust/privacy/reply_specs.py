"""What algorithms send, by step: the schemas that a site's policy is checked against."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from flareclust._foundation.errors import UserError
from flareclust.privacy.secure_aggregation.masking import KEY
from flareclust.protocol.schema import Schema
from flareclust.protocol.task import ASSESS, ASSESSMENT, KEYS, PLACE, PLACED, SCORE

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor


@dataclass(frozen=True)
class ReplySpec:
    """What some algorithm sends in a step.

    Attributes:
        schema: its arrays.
        private: whether everything in it is differentially private.
        sums: whether it is sums over rows without noise; None where they never leave the site unmasked.
        maskable: whether secure sums mask it, where it is sums.
    """

    schema: Schema
    private: bool
    sums: bool | None = False
    maskable: bool = True


@lru_cache(maxsize=1)
def registered_replies() -> Mapping[str, list[ReplySpec]]:
    """Return, by step, what the algorithms send that are registered here, those of installed packages among them."""
    from flareclust.protocol.registry import algorithms  # it imports the executors, as this module's importers may

    classes = []
    for algorithm in algorithms().values():
        try:
            classes += [algorithm.executor_class()] if algorithm.federated else []
        except UserError:  # it needs a package that is not installed, so no job can run it here either
            continue
    return replies_of(classes)


def replies_of(executors: "Iterable[type[ClusteringExecutor]]") -> dict[str, list[ReplySpec]]:
    """Return, by step, what executors of these classes send."""
    found: dict[str, list[ReplySpec]] = {
        ASSESS: [ReplySpec(ASSESSMENT, False, sums=True)],
        PLACE: [ReplySpec(PLACED, False)],
        KEYS: [ReplySpec(KEY, False)],
    }
    for executor in executors:
        for step in executor.all_steps():
            maskable = step in executor.summed
            # Scores are sums whoever asks for them; some of them do not add up over sites, and so no mask fits them.
            sums = None if step in executor.masked_only else maskable or (step == SCORE and not executor.private)
            sent = ReplySpec(executor.schema(step), executor.private, sums, maskable or not sums)
            if sent not in found.setdefault(step, []):
                found[step].append(sent)
    return found
