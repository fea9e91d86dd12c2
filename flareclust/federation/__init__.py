"""The run of a federation, the same in every engine."""

from flareclust.federation.exchanges import ASSESSED, IN_ASSESSMENT, Ask, OnRound
from flareclust.federation.run import FederationOptions, quorum, run_federation

__all__ = [
    "ASSESSED",
    "IN_ASSESSMENT",
    "Ask",
    "FederationOptions",
    "OnRound",
    "aggregator",
    "assessment",
    "batch_exchanges",
    "checkpoint",
    "exchanges",
    "executor",
    "noisy_outcomes",
    "nvflare_executor",
    "outcomes",
    "profile_exchanges",
    "profiles",
    "quorum",
    "refinement",
    "rows_read",
    "run_federation",
    "server",
    "site",
    "stages",
]
