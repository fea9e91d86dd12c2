"""Choosing the clients that train in a round of federated averaging.

Sources: `draw`, `pow_d`: Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and
Power-of-Choice Selection Strategies" (2020), section 4: draw d candidates in proportion to their rows, ask them for the
loss of the current model on their rows, and have the m with the largest losses train. `pow_d_kfed`: Dennis, Li, Smith,
"Heterogeneity for the Win: One-Shot Federated Clustering" (2021), section 4.2.2, "Client Selection": the same without
clients of the same clusters.

Readings where the papers are open:
1. Random selection draws m clients in the way that pow-d draws its d candidates, so that the two differ by the losses
   only. Clients are drawn without replacement; of equal losses the candidate that was drawn first counts.
2. A client has the clusters that k-FED assigned its local centers to: one, or several. Candidates are looked at in the
   order of falling losses. One is passed over if all of its clusters are those of candidates chosen before it.
3. Where that leaves fewer than m, it begins anew with the candidates that were passed over, until there are m. So there
   are always m clients, and with one cluster for all of them the choice is that of `pow_d`.
4. A client whose clusters are not known, because it came after the one-shot clustering, counts as a cluster of its own.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_int

#: Names of the three ways to choose.
RANDOM, POW_D, POW_D_KFED = METHODS = ("random", "pow-d", "pow-d-kfed")


def draw(rows: ArrayLike, size: int, rng: np.random.Generator) -> IntArray:
    """Draw clients without replacement, each draw in proportion to the rows of those that are left.

    Args:
        rows: (n,) number of rows of each client, or other positive weights; all the same for equal chances.
        size: how many, 1 to n.
        rng: makes n draws of its exponential distribution.

    Returns:
        Indices (size,) in the order in which they were drawn.

    Raises:
        UserError: for input that does not fit the above.
    """
    weights = _vector("rows", rows)
    if not (weights > 0).all():
        raise UserError("rows must be positive; leave out clients without rows, which cannot train")
    size = _at_most(size, len(weights), "size", "clients")
    # The order of exponential waiting times with these rates is that of successive draws, and none is divided by a sum.
    return np.argsort(rng.standard_exponential(len(weights)) / weights, kind="stable")[:size]


def pow_d(losses: ArrayLike, m: int) -> IntArray:
    """Return the places (m,) of the m candidates with the largest losses, the largest first.

    Args:
        losses: (d,) loss of the current model on each candidate's rows, in the order of the draw.
        m: how many, 1 to d.

    Raises:
        UserError: for input that does not fit the above.
    """
    values = _vector("losses", losses)
    return _by_loss(values)[: _at_most(m, len(values), "m", "candidates")]


def pow_d_kfed(losses: ArrayLike, clusters: Sequence[Collection[int]], m: int) -> IntArray:
    """Return the places (m,) of m candidates with large losses and different clusters, in the order of choice.

    Args:
        losses: (d,) as for `pow_d`.
        clusters: (d,) numbers of the clusters that each candidate has rows of; empty where they are not known.
        m: how many, 1 to d.

    Raises:
        UserError: for input that does not fit the above.
    """
    values = _vector("losses", losses)
    m = _at_most(m, len(values), "m", "candidates")
    if len(clusters) != len(values):
        raise UserError(f"clusters must have an entry for each of the {len(values)} candidates, got {len(clusters)}")
    left, chosen = [int(place) for place in _by_loss(values)], list[int]()
    while len(chosen) < m:
        kept = _one_of_each(left, clusters)
        chosen += kept
        left = [place for place in left if place not in kept]
    return np.array(chosen[:m], dtype=np.int64)


def clusters_by_client(assigned: ArrayLike, owners: ArrayLike, clients: Sequence[str]) -> dict[str, list[int]]:
    """Return the clusters of each client from what k-FED's server has found.

    Args:
        assigned: (c,) the cluster of each received center: `tau` of k-FED's result.
        owners: (c,) the place of its client among `clients`: `received_site` of k-FED's result.
        clients: names of the clients that sent centers, in the order of k-FED's record of its round.

    Returns:
        Numbers of clusters by name, in rising order; none for a client that sent no center.

    Raises:
        UserError: the two arrays do not fit each other or the clients.
    """
    tau, places = np.asarray(assigned), np.asarray(owners)
    if tau.ndim != 1 or tau.shape != places.shape or {tau.dtype.kind, places.dtype.kind} - set("iu"):
        raise UserError(f"assigned and owners must be two lists of as many integers, got {tau.shape}, {places.shape}")
    if len(places) and not 0 <= places.min() <= places.max() < len(clients):
        raise UserError(f"owners must be places among the {len(clients)} clients, got {places.min()}..{places.max()}")
    return {name: np.unique(tau[places == place]).tolist() for place, name in enumerate(clients)}


def _one_of_each(places: Sequence[int], clusters: Sequence[Collection[int]]) -> list[int]:
    """Return the places, in their order, that bring a cluster which those before them have not."""
    kept, seen = list[int](), set[int]()
    for place in places:
        own = set(clusters[place])
        if not own or own - seen:
            kept.append(place)
            seen |= own
    return kept


def _by_loss(losses: FloatArray) -> IntArray:
    return np.argsort(-losses, kind="stable")


def _vector(name: str, values: ArrayLike) -> FloatArray:
    vector = np.asarray(values)
    if vector.ndim != 1 or vector.dtype.kind not in "iuf":
        raise UserError(f"{name} must be a list of numbers, got shape {vector.shape} of {vector.dtype}")
    if not np.isfinite(vector).all():
        raise UserError(f"{name} must be finite numbers; leave out the clients whose {name} are not")
    return vector.astype(np.float64)


def _at_most(value: int, maximum: int, name: str, of: str) -> int:
    if check_int(name, value, minimum=1) > maximum:
        raise UserError(f"{name} is {value}, more than the {maximum} {of} there are")
    return int(value)
