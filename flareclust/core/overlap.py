"""Which sites share columns: the graph that decides whether, and how, their centroids can be compared.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 3.3. The vertices
are the sites, and an edge joins two sites that share a column. The paper asks this of every true cluster's graph, and
that its sites observe all columns together; nobody knows the true clusters, so what is judged is the graph of all sites.
Where some sites lack a cluster, its graph may fall apart, or its sites miss a column, though all sites together do not;
but if any two sites share a column, so do any two that have the cluster.

Added: a column that is known to be constant links no sites, since nothing can be compared by it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.display import some
from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray

#: Names that a text lists at most.
NAMED = 5


class Verdict(NamedTuple):
    """What the overlap of the sites' columns allows.

    Attributes:
        connected: every site is joined to every other by a path of overlaps.
        complete: any two sites share a column.
        assumption_1: what Assumption 1 asks of the graph holds. It asks besides that the rows of a cluster are
            distributed alike at all sites that have it, which cannot be checked.
        assumption_2: what Assumption 2 asks of the graph holds.
        method: "A", or "B": the one whose assumption asks least of what nobody can check.
        text: the same in words.
    """

    connected: bool
    complete: bool
    assumption_1: bool
    assumption_2: bool
    method: Literal["A", "B"]
    text: str


def components(masks: ArrayLike) -> list[list[int]]:
    """Return the connected components of the graph of sites, each with its sites' numbers in ascending order.

    They come in the order of their first sites. A site without a column is a component of its own. Raises UserError unless
    masks, which site has which column, are (m, D) of true and false, m >= 1.
    """
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(_edges(_as_masks(masks)), directed=False)
    return sorted(np.flatnonzero(labels == c).tolist() for c in range(count))


def judge_overlap(masks: ArrayLike, sites: Sequence[str], constant: Sequence[str] = ()) -> Verdict:
    """Return which assumptions the overlap of columns supports, and which method they suit.

    Any two sites share a column: method B, which needs nothing known about distributions. Connected otherwise:
    method A, whose assumption of like distributions nobody can check. Not connected: method B, as the paper does in a
    case that it does not support, and a text that names the components.

    Args:
        masks: which site has which column (m, D) bool; false for those that are constant.
        sites: their names (m,).
        constant: names of shared columns that are constant, for the text.

    Raises UserError where masks are not (m, D) of true and false, m >= 1, or do not fit the names.
    """
    known = _as_masks(masks)
    if len(sites) != len(known):
        raise UserError(f"sites must be {len(known)} names, one for each row of masks, got {len(sites)}")
    complete, parts = bool(_edges(known).all()), components(known)
    connected = len(parts) == 1
    if complete:
        text = (
            "any two sites share a column, which suits method B (Assumption 2): it needs nothing known about how rows are spread over "
            "the sites"
        )
    elif connected:
        text = (
            f"all sites are linked by shared columns, with {_apart(known, sites)}, which suits method A (Assumption 1): it takes the "
            "rows of a cluster to be distributed alike at all sites, which nobody can check"
        )
    else:
        listed = "; ".join(f"{{{some([sites[i] for i in part], NAMED)}}}" for part in parts)
        text = (
            f"the sites fall into {len(parts)} parts without a shared column: {listed}. Neither assumption holds, "
            "and no cluster of one part can be matched to one of another; cluster the parts one by one, or add a site that "
            "has columns of both"
        )
    if constant:
        text += f". Constant columns link no sites: {some(constant, NAMED)}"
    return Verdict(connected, complete, connected, complete, "A" if connected and not complete else "B", text)


def _edges(masks: BoolArray) -> BoolArray:
    """Return which sites share a column (m, m); every site is joined to itself."""
    counted = masks.astype(np.float64)
    return (counted @ counted.T > 0) | np.eye(len(masks), dtype=np.bool_)


def _apart(masks: BoolArray, sites: Sequence[str]) -> str:
    """Return in words the first pair of sites that share no column, and how many there are."""
    i, j = np.nonzero(np.triu(~_edges(masks)))
    pairs = "one pair" if len(i) == 1 else f"{len(i)} pairs"
    return f"{pairs} of them without a common one (first {sites[int(i[0])]} and {sites[int(j[0])]})"


def _as_masks(masks: ArrayLike) -> BoolArray:
    known = np.asarray(masks)
    if known.ndim != 2 or len(known) == 0 or known.dtype != np.bool_:
        raise UserError(
            f"masks must be true or false for each site and column, (m, D), got shape {known.shape} of {known.dtype}"
        )
    return known
