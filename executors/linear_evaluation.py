"""Linear evaluation, the client's side: sums for a logistic regression on features, which stay at the site.

Labels are in a column of the site's table, for evaluation only. A fifth of the rows of each site is held out.
"""

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import logistic
from flareclust.data.tables import Table
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.steps import Step

#: The steps: second moments of the features first, then gradients.
MOMENTS, GRADIENT = "linear_moments", "linear_gradient"

STEPS = {
    MOMENTS: Step(Schema(moments="f f"), "linear_moments", summed=True, named=True),
    GRADIENT: Step(
        Schema(gradient="c f", loss=real("", minimum=0), correct=counts(""), tested=counts("")),
        "linear_gradient",
        summed=True,
        named=True,
    ),
}

#: One row in so many is held out.
HELD_OUT = 5

#: More classes than anyone evaluates.
MOST_CLASSES = 10_000


def classes_of(table: Table, column: str) -> IntArray:
    """Return the classes (n,) in a column: integers from 0.

    Raises:
        Refusal: there is no such column, or it holds something else.
    """
    if column not in (table.columns or ()):
        raise Refusal(f"has no column {column!r}, which class_column names")
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


def held_out(n: int, seed: int, site: str) -> IntArray:
    """Return which of n rows (n // HELD_OUT,) a site evaluates on; the same in every step."""
    return np.sort(stream(seed, 0, f"held out at {site}").permutation(n)[: n // HELD_OUT])


def moments(features: FloatArray, test: IntArray) -> Message:
    """Return the sum of outer products of the rows (n, f) to learn from."""
    X = np.delete(logistic.with_constant(features), test, axis=0)
    return {"moments": X.T @ X}


def gradient(features: FloatArray, classes: IntArray, test: IntArray, coefficients: FloatArray) -> Message:
    """Return loss and gradient over the rows (n, f) to learn from, and how many of those held out are in their class."""
    X = logistic.with_constant(features)
    if coefficients.ndim != 2 or coefficients.shape[1] != X.shape[1] or len(coefficients) <= classes.max(initial=0):
        raise BadMessage(f"coefficients: expected a row for each class, of {X.shape[1]} numbers")
    learned = logistic.sums(np.delete(X, test, axis=0), np.delete(classes, test), coefficients)
    found = logistic.sums(X[test], classes[test], coefficients)
    return {
        "gradient": learned.gradient,
        "loss": np.array(learned.loss),
        "correct": np.array(found.correct),
        "tested": np.array(len(test)),
    }
