"""The kinds of model that devices train, by name."""

from typing import Any

from flareclust._foundation.extras import require
from flareclust.personal.learners import Learner
from flareclust.personal.linear import Linear

MODELS = ("mlp", "linear")

#: What the extra is for, as a message says it.
NEEDED_BY = "the model mlp (model=linear needs no extra)"


def make_learner(
    model: str, columns: int, classes: int, *, hidden: int, lr: float, updates: int, batch: int
) -> Learner[Any]:
    """Return a kind of model for rows of so many columns and classes.

    Args:
        model: one of `MODELS`.
        columns: inputs d.
        classes: number of classes.
        hidden: hidden units of mlp.
        lr: step size.
        updates: local updates of a round; of linear, passes over the rows.
        batch: rows of an update of mlp.

    Raises:
        UserError: mlp lacks its extra.
    """
    if model == "linear":
        return Linear(columns, classes, lr, updates)
    require("deep", NEEDED_BY)
    from flareclust.personal.networks import Perceptron

    return Perceptron(columns, classes, hidden, lr, updates, batch)
