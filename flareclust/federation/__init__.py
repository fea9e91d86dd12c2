"""The course of a federation, the same in every engine."""

from flareclust.federation.course import ASSESSED, IN_ASSESSMENT, Ask, OnRound
from flareclust.federation.run import quorum, run_federation
from flareclust.federation.secure_course import large_enough

__all__ = ["ASSESSED", "IN_ASSESSMENT", "Ask", "OnRound", "large_enough", "quorum", "run_federation"]
