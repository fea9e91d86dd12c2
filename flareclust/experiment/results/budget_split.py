"""How a job under differential privacy spent its budget, from what is written down of its exchanges."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import cast

from flareclust.aggregators.dp_base import BUDGET_SHARE
from flareclust.executors.dp_base import ASSESSMENT_SHARE
from flareclust.experiment.results.values import ResultValues
from flareclust.protocol.task import ASSESS


def budget_split(result: ResultValues, named: Callable[[str], str] = str, between: str = ", ") -> str:
    """Return the share of the job's rho that each step cost: "cluster 50 %, update 3 x 15 %, assess 5 %"; "" without privacy.

    Args:
        result: of any algorithm.
        named: gives the words for a step; by default its name.
        between: what separates the steps.
    """
    shares: list[tuple[str, float]] = []
    for record in () if result.outcome is None else result.outcome.rounds:
        diagnostics = cast("Mapping[str, float]", record["diagnostics"])
        if BUDGET_SHARE in diagnostics:
            shares.append((str(record["step"]), diagnostics[BUDGET_SHARE]))
        elif shares and record["step"] == ASSESS:
            shares.append((ASSESS, ASSESSMENT_SHARE))
    parts = [(step, share, len(list(alike))) for (step, share), alike in groupby(shares)]
    return between.join(f"{named(step)} {f'{n} x ' if n > 1 else ''}{100 * share:.3g} %" for step, share, n in parts)
