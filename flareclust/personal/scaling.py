"""Columns of devices in unlike units: which one outweighs the others, and scaling by mean and deviation of all devices' rows.

Both are of the rows to train with. Each device's mean and deviation are rounded as those that the sites of a job with
`scale=standard` send (`flareclust.core.scaling`).
"""

from dataclasses import replace

import numpy as np

from flareclust.core.scaling import Spread, divisors_of, pooled_spread, rounded_spread
from flareclust.features.columns import decides_distances, outweighing
from flareclust.features.scaling import Scaling
from flareclust.personal.rows import Labelled, Split

#: How columns can be scaled.
SCALES = ("none", "standard")


def spread_of(split: Split) -> Spread:
    """Return mean and deviation of the columns over the rows that all devices train with."""
    own = [rounded_spread(rows.X) for rows in split.train.values()]
    rows = np.array([one.rows for one in own], dtype=np.float64)
    m2 = np.stack([one.rows * np.square(one.deviation) for one in own])
    return pooled_spread(rows, np.stack([one.mean for one in own]), m2)


def scaling_by(spread: Spread) -> Scaling:
    """Return what brings columns of this spread to mean 0 and variance 1; constant ones keep their unit."""
    return Scaling(spread.mean, divisors_of(spread.deviation))


def scaled(split: Split, scaling: Scaling) -> Split:
    """Return the devices' rows in scaled units, those held out, too."""
    train, test = (
        {name: Labelled(scaling(rows.X), rows.y) for name, rows in half.items()} for half in (split.train, split.test)
    )
    return replace(split, train=train, test=test)


def outweighing_column(spread: Spread) -> list[str]:
    """Return a warning about a column that varies far more than most others, by its number; else nothing."""
    d = len(spread.deviation)
    widest = outweighing([f"column {j + 1} of {d}" for j in range(d)], spread.deviation)
    return [] if widest is None else [decides_distances(widest, "scale=standard")]
