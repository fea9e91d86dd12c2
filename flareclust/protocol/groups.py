"""Messages about groups of rows, such as those nearest to each centroid: their numbers of rows, means and squared deviations."""

from flareclust._foundation.typing import Message
from flareclust.core.disclosure import factor
from flareclust.protocol.schema import Schema, counts, index, real

#: Names of the arrays about groups of rows: which group, how many rows, their mean, the squared deviations from it.
GROUP, ROWS, MEAN, SPREAD = "cluster", "counts", "centroids", "m2"

#: A reply that describes groups with their spread.
GROUPS = Schema(
    may_be_empty=True,
    **{
        GROUP: index("k", less_than="K"),
        ROWS: counts("k", minimum=1),
        MEAN: real("k d"),
        SPREAD: real("k d", minimum=0),
    },
)


def rounded_spread(groups: Message, multiple: int, floor: int) -> Message:
    """Return groups whose squared deviations go with their numbers of rows, or of cells, as multiples of a site's policy."""
    scale = factor(groups[ROWS], multiple, floor)
    return {**groups, SPREAD: groups[SPREAD] * (scale if scale.ndim == 2 else scale[:, None])}
