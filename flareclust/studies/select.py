"""`flareclust.select_k`: how many clusters a federation's rows have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust.api import run
from flareclust.evaluation.criteria import USUAL
from flareclust.evaluation.selection import parse_k, selection_of, summary
from flareclust.experiment.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class KSelected:
    """The number of clusters that was selected, and what it was selected from.

    Attributes:
        k: the number selected.
        criterion: what selected it.
        scores: by number of clusters tried, its `inertia`, `calinski_harabasz`, `simplified_silhouette`, `davies_bouldin` and
            `separated`; None where the sites were not asked for it.
        best: the number that each criterion with known scores selects.
        result: the algorithm's result with k clusters.
    """

    k: int
    criterion: str
    scores: Mapping[int, Mapping[str, float | None]]
    best: Mapping[str, int]
    result: Result

    def plot(self) -> "Figure":
        """Return a picture of all criteria over the numbers of clusters."""
        require("plots", "a picture")
        from flareclust.plotting.selection import choice_picture

        known = selection_of(self.result.arrays)
        assert known is not None
        return choice_picture(known)


def select_k(
    algorithm: str, data: Any, k_range: str | range | tuple[int, int], *, criterion: str = USUAL, **settings: Any
) -> KSelected:
    """Select the number of clusters from one upload of each site, and run an algorithm with it.

    Args:
        algorithm: as in `run`.
        data: as in `run`.
        k_range: the numbers to try: range(2, 16), (2, 15) or "2..15".
        criterion: "calinski-harabasz", "silhouette", "davies-bouldin", "elbow" or "separation".
        **settings: further arguments of `run`.

    Raises:
        UserError: as `run`; or `k_range` is one number.
        JobFailed: as `run`.
    """
    if parse_k(k_range)[1] is None:
        raise UserError(f"k_range: expected numbers of clusters such as range(2, 16), got {k_range!r}")
    result = run(algorithm, data, k_range, criterion=criterion, **settings)
    known = summary(result.arrays)
    assert known is not None
    names = [name for name in known if name not in ("k", "rules")]
    scores = {k: {name: known[name][i] for name in names} for i, k in enumerate(known["k"])}
    return KSelected(result.k, str(result.experiment["criterion"]), scores, known["rules"], result)
