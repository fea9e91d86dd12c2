"""The disclosure record of personalised models: whether the models, and what is said of the devices, may be released."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.typing import BoolArray, IntArray
from flareclust.evaluation.disclosure import REVIEW, SATURATED, Cells, Finding, Output, Rule, record_of_all

if TYPE_CHECKING:
    from flareclust.personal.result import PersonalResult

#: What is to say of numbers of single devices.
_OF_DEVICES = Finding(REVIEW, "numbers of single devices: each decides whether its own may be released")


def personal_disclosure(
    result: "PersonalResult", models: Sequence[str], rounds: Sequence[str], summary: str
) -> dict[str, Any]:
    """Return the record of personalised models, plain JSON; docs/disclosure.md has its fields.

    Args:
        result: what was trained.
        models, rounds, summary: names of the files that have the models, the accuracies by round, and the rest.
    """
    return record_of_all(_outputs(result, models, rounds, summary), Rule(), "", "")


def _outputs(result: "PersonalResult", models: Sequence[str], rounds: Sequence[str], summary: str) -> Iterator[Output]:
    rows = np.zeros((len(result.names), len(models)), dtype=np.int64)
    uses, known = np.zeros(rows.shape, dtype=np.bool_), True
    for i, name in enumerate(result.names):
        for j, number in result.models_of.get(name, {}).items():
            uses[i, j], known = True, known and number is not None
            rows[i, j] = number or 0
    named = [f"model {j}" for j in range(len(models))]
    total = Cells(rows.sum(axis=0)[:, None], named, ["rows"]) if known else None
    alone, numbers = tuple(_of_one_device(uses)), sum(int(value[0].size) for value in result.models.values())
    yield Output(
        *("models", "model", "weights of the models, and what scales the columns", tuple(models), total),
        findings=(*alone, *_saturated(numbers, rows.sum(axis=0) if known else None)),
        properties={"numbers": numbers},
    )
    if known:
        cells, text = Cells(rows, list(result.names), named), "rows of each device to train each model with"
        yield Output("device_rows", "table", text, (summary,), cells, findings=(_OF_DEVICES,))
    why = "how many rows are behind the accuracy of each device is not known"
    yield Output(*("accuracy", "table", "accuracy of each device", (summary,)), unknown=why, findings=(_OF_DEVICES,))
    text = "accuracy after each round: mean, least and largest of the devices"
    yield Output("rounds", "table", text, tuple(rounds), unknown=why, findings=(_OF_DEVICES,))


def _of_one_device(uses: BoolArray) -> Iterator[Finding]:
    """Give which models are trained by a single device, by which devices (m, k) use them."""
    if single := [str(j) for j in np.flatnonzero(uses.sum(axis=0) == 1)]:
        which = f"model{'' if len(single) == 1 else 's'} {', '.join(single[:20])}"
        more = f" and {len(single) - 20} more" if len(single) > 20 else ""
        yield Finding(REVIEW, f"all rows of {which}{more} are of one device: it is that device's own")


def _saturated(numbers: int, rows: IntArray | None) -> Iterator[Finding]:
    """Give whether so many weights can determine the rows (k,) that a model was trained with."""
    used = [] if rows is None else rows[rows > 0].tolist()
    if used and numbers > SATURATED * min(used):
        yield Finding(
            REVIEW,
            f"saturated: {numbers:,} weights of a model for {min(used):,} rows of that with fewest, more than {SATURATED} for each",
        )
