"""Choosing the clients that train in a round of federated averaging.

Sources: `draw`, `pow_d`: Cho, Wang, Joshi, "Client Selection in Federated Learning: Convergence Analysis and
Power-of-Choice Selection Strategies" (2020), section 4: draw d candidates in proportion to their rows, ask them for the
loss of the current model on their rows, and have the m with the largest losses train. With clusters: Dennis, Li, Smith,
"Heterogeneity for the Win: One-Shot Federated Clustering" (2021), section 4.2.2, "Client Selection": the same without
clients of the same clusters.

Readings where the papers are open:
1. Random selection draws m clients in the way that pow-d draws its d candidates, so that the two differ by the losses
   only. Clients are drawn without replacement; of equal losses the candidate that was drawn first counts.
2. A client has the clusters that k-FED assigned its local centers to: one, or several. Candidates are looked at in the
   order of falling losses. One is passed over if all of its clusters are those of candidates chosen before it.
3. Where that leaves fewer than m, it begins anew with the candidates that were passed over, until there are m. So there
   are always m clients, and with one cluster for all of them the choice is that without clusters.
4. A client whose clusters are not known, because it came after the one-shot clustering, counts as a cluster of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_choice, check_int

#: Names of the three ways to choose.
RANDOM, POW_D, POW_D_KFED = METHODS = ("random", "pow-d", "pow-d-kfed")

#: The owner of the random stream that draws the clients of a round.
_PURPOSE = "client selection"


@dataclass(frozen=True)
class Selection:
    """How the clients of each round are chosen: some are `drawn`, and where it `asks` for losses, some of these are `chosen`.

    Attributes:
        method: one of `METHODS`.
        m: how many train in a round; where there are no more, all of them do, and no loss is asked.
        candidates: d, how many are asked for their loss; None for 2 m.
        clusters: numbers of the clusters that a client has rows of, by name, for "pow-d-kfed"; see `clusters_by_client`. A
            client that is not there is a cluster of its own.
        seed: of the draws.
    """

    method: str
    m: int
    candidates: int | None = None
    clusters: Mapping[str, Collection[int]] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("method", self.method, METHODS)
        check_int("m", self.m, minimum=1)
        check_int("seed", self.seed, minimum=0)
        if self.method == POW_D_KFED and self.clusters is None:
            raise UserError("method 'pow-d-kfed' needs the clusters of the clients, which k-FED finds; give clusters")
        if self.candidates is not None and check_int("candidates", self.candidates, minimum=1) < self.m:
            raise UserError(
                f"candidates is {self.candidates}, fewer than the {self.m} clients that are to train; ask at least as many"
            )

    def choose(
        self, rows: Mapping[str, float], round_: int, losses: Callable[[list[str]], Mapping[str, float]]
    ) -> tuple[list[str], int]:
        """Return the clients that train in a round where losses are at hand, and how many were asked for theirs before.

        `losses` returns those that are known of some clients, in the order of these; the others as of `drawn`.
        """
        drawn = self.drawn(rows, round_)
        return (self.chosen(losses(drawn)), len(drawn)) if self.asks(len(rows)) else (drawn, 0)

    def asks(self, count: int) -> bool:
        """Return whether some of so many clients are asked for their loss before others train."""
        return self.method != RANDOM and self.m < count

    def drawn(self, rows: Mapping[str, float], round_: int) -> list[str]:
        """Return the clients drawn for a round from 0: the candidates where it `asks` for losses, else those that train.

        `rows` has the number of rows, or another positive weight, of each client that can train. Names come in the order of
        the draw; all of them, sorted, where there are no more than m.
        """
        names = sorted(rows)
        if self.m >= len(names):
            return names
        d = 2 * self.m if self.candidates is None else self.candidates
        size = self.m if self.method == RANDOM else min(d, len(names))
        places = draw([rows[name] for name in names], size, stream(self.seed, round_, _PURPOSE))
        return [names[place] for place in places]

    def chosen(self, losses: Mapping[str, float]) -> list[str]:
        """Return the m candidates that train, or all where there are fewer, by the known losses in the order of the draw."""
        names, own = list(losses), self.clusters if self.method == POW_D_KFED and self.clusters else {}
        clusters = [own.get(name, ()) for name in names]
        return [names[place] for place in pow_d([*losses.values()], min(self.m, len(names)), clusters)]


def draw(rows: ArrayLike, size: int, rng: np.random.Generator) -> IntArray:
    """Draw clients without replacement, each draw in proportion to the rows of those that are left.

    Rows (n,) are positive weights. The indices (size,) come in the order of the draws, which take n exponential numbers of
    `rng`. Raises UserError for other input, or a size beyond 1 to n.
    """
    weights = _vector("rows", rows)
    if not (weights > 0).all():
        raise UserError("rows must be positive; leave out clients without rows, which cannot train")
    size = _at_most(size, len(weights), "size", "clients")
    # The order of exponential waiting times with these rates is that of successive draws, and none is divided by a sum.
    return np.argsort(rng.standard_exponential(len(weights)) / weights, kind="stable")[:size]


def pow_d(losses: ArrayLike, m: int, clusters: Sequence[Collection[int]] | None = None) -> IntArray:
    """Return the places (m,) of the m candidates with the largest losses, the largest first; with `clusters`, of different ones.

    Args:
        losses: (d,) loss of the current model on each candidate's rows, in the order of the draw.
        m: how many, 1 to d.
        clusters: (d,) numbers of the clusters that each candidate has rows of; empty where they are not known.

    Raises UserError for input that does not fit the above.
    """
    values = _vector("losses", losses)
    m = _at_most(m, len(values), "m", "candidates")
    clusters = [()] * len(values) if clusters is None else clusters
    if len(clusters) != len(values):
        raise UserError(f"clusters must have an entry for each of the {len(values)} candidates, got {len(clusters)}")
    left, chosen = np.argsort(-values, kind="stable").tolist(), list[int]()
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

    Raises UserError where the two arrays do not fit each other or the clients.
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
