"""What algorithms send, by step: the schemas that a site's policy is checked against."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from flareclust._foundation.errors import UserError
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import (
    ASSESS,
    KEYS,
    PLACE,
    PROFILE,
    PROFILE_BINS,
    PROFILE_KNOWN,
    PROFILE_KNOWN_BINS,
    SCORING,
)

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor


#: The steps that executors of all algorithms answer.
OF_ALL = (ASSESS, PLACE, KEYS, PROFILE, PROFILE_BINS, PROFILE_KNOWN, PROFILE_KNOWN_BINS)


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


#: What each registered algorithm sends: by its name, and by step.
ReplySpecs = Mapping[str, Mapping[str, ReplySpec]]


@lru_cache(maxsize=1)
def registered_replies() -> ReplySpecs:
    """Return what the algorithms send that are registered here, those of installed packages among them."""
    from flareclust.protocol.registry import algorithms  # it imports the executors, as this module's importers may

    found: dict[str, dict[str, ReplySpec]] = {}
    for algorithm in algorithms().values():
        try:
            found |= {algorithm.name: replies_of(algorithm.executor_class())} if algorithm.federated else {}
        except UserError:  # it needs a package that is not installed, so no job can run it here either
            continue
    return found


def replies_of(executor: "type[ClusteringExecutor]") -> dict[str, ReplySpec]:
    """Return, by step, what executors of this class send."""
    return {name: _spec(name, step, private=executor.private) for name, step in executor.steps.items()}


def _spec(name: str, step: Step, *, private: bool) -> ReplySpec:
    if name in OF_ALL:
        return ReplySpec(step.schema, private, sums=step.summed)
    # Scores are sums in every algorithm; some of them do not add up over sites, and so no mask fits them.
    sums = None if step.jobs == "secure" else step.summed or (name in SCORING and not private)
    return ReplySpec(step.schema, private, sums, step.summed or not sums)
