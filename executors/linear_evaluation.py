"""Linear evaluation, the client's side: sums for a logistic regression on features, which stay at the site.

Labels are in a column of the site's table, for evaluation only. A fifth of the rows of each site is held out.
"""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core import logistic
from flareclust.data.tables import Table
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step

#: The steps: second moments of the features first, then gradients.
MOMENTS, GRADIENT = "linear_moments", "linear_gradient"

#: One row in so many is held out.
_HELD_OUT = 5

#: More classes than anyone evaluates.
MOST_CLASSES = 10_000

_COEFFICIENTS = Schema(coefficients="c f")


class _Moments(Schema):
    """Second moments of rows."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where they cannot be those of rows."""
        moments = message["moments"]
        if (np.diag(moments) < 0).any() or not np.allclose(moments, moments.T, rtol=1e-6):
            raise BadMessage("moments: expected a symmetric array without negative numbers on its diagonal")


class _Gradient(Schema):
    """Sums of a logistic regression."""

    def compare(self, message: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Raise BadMessage where more rows are in their class than there are."""
        if message["correct"] > message["tested"]:
            raise BadMessage("correct: holds more rows than tested")


STEPS = {
    MOMENTS: Step(_Moments(moments="f f"), "linear_moments", summed=True, as_is=True),
    GRADIENT: Step(
        _Gradient(gradient="c f", correct=counts(""), tested=counts("")),
        "linear_gradient",
        "linear_gradient",
        summed=True,
        as_is=True,
    ),
}


def classes_of(table: Table, column: str) -> IntArray:
    """Return the classes (n,) in a column: integers from 0.

    Raises:
        Refusal: there is no such column, or it holds something else.
    """
    if column not in (table.columns or ()):
        raise Refusal("has no column with the name that class_column gives")
    values = table.X[:, (table.columns or ()).index(column)]
    if not ((values >= 0) & (values < MOST_CLASSES) & (values == np.floor(values))).all():
        raise Refusal(f"has something else than integers from 0 to {MOST_CLASSES - 1} in the column of the classes")
    return values.astype(np.int64)


def without(table: Table, column: str | None) -> Table:
    """Return a table without the column of the classes."""
    names = table.columns or ()
    if column is None or column not in names:
        return table
    kept = [j for j, name in enumerate(names) if name != column]
    return Table(np.ascontiguousarray(table.X[:, kept]), tuple(names[j] for j in kept))


def held_out(n: int, seed: int, site: str, least: int = 1) -> IntArray:
    """Return which of n rows (n // HELD_OUT,) a site evaluates on, the same in every step; none if fewer than `least`."""
    if n // _HELD_OUT < least:
        return np.zeros(0, dtype=np.int64)
    return np.sort(stream(seed, 0, f"held out at {site}").permutation(n)[: n // _HELD_OUT])


def moments(features: FloatArray, test: IntArray) -> Message:
    """Return the sum of outer products of the rows (n, f) to learn from."""
    X = np.delete(logistic.with_constant(features), test, axis=0)
    return {"moments": logistic.moments(X)}


def gradient(features: FloatArray, classes: IntArray, test: IntArray, arrays: Message) -> Message:
    """Return the gradient at a task's coefficients over the rows (n, f) to learn from, and how many of those held out are in their class."""
    X = logistic.with_constant(features)
    c = _COEFFICIENTS.check({"coefficients": arrays.get("coefficients")}, {"f": X.shape[1]})["c"]  # type: ignore[dict-item]
    if not classes.max(initial=0) < c <= MOST_CLASSES:
        raise BadMessage("coefficients: expected a row for each class")
    coefficients = arrays["coefficients"]
    learned = logistic.sums(np.delete(X, test, axis=0), np.delete(classes, test), coefficients)
    correct = logistic.sums(X[test], classes[test], coefficients).correct if len(test) else 0
    return {"gradient": learned.gradient, "correct": np.array(correct), "tested": np.array(len(test))}
