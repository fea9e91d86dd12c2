"""`flareclust.select_k`: how many clusters a federation's rows have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust.api import run
from flareclust.evaluation import criteria, selection
from flareclust.evaluation.null_reference import USUAL, NullTest
from flareclust.experiment.results.result import Result
from flareclust.studies.null_test import check_null, null_test, with_null_test
from flareclust.studies.repeats import check_repeatable

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
        result: the algorithm's result with k clusters; a report of it (`result.save`) has `null`.
        null: how the rows compare with rows without clusters; None where that was not asked for.
    """

    k: int
    criterion: str
    scores: Mapping[int, Mapping[str, float | None]]
    best: Mapping[str, int]
    result: Result
    null: NullTest | None = None

    def plot(self) -> "Figure":
        """Return a picture of all criteria over the numbers of clusters; UserError for the cut of a tree, which has none."""
        require("plots", "a picture")
        from flareclust.experiment.plotting.selection import choice_picture

        if not self.scores:
            raise UserError("a tree is cut where that lasts longest, without scores by k; take result.plot_tree()")
        own = {k: float(scores.get(self.criterion) or 0.0) for k, scores in self.scores.items()}
        return choice_picture(selection.selection_of(self.result.arrays) or own, self.criterion)


def select_k(
    algorithm: str,
    data: Any,
    k_range: str | range | tuple[int, int],
    *,
    criterion: str = criteria.USUAL,
    null: int = 0,
    null_reference: str = USUAL,
    **settings: Any,
) -> KSelected:
    """Select the number of clusters from one upload of each site, and run an algorithm with it.

    Args:
        algorithm: as in `run`.
        data: as in `run`.
        k_range: the numbers to try: range(2, 16), (2, 15) or "2..15".
        criterion: "calinski-harabasz", "silhouette", "davies-bouldin", "elbow" or "separation"; of `gmm` also "bic",
            which is its default, or "icl". `tree` has none: without one its own cut selects, and there are no `scores`.
        null: number of runs on rows without clusters to compare with, at least 19; 0 for none. `KSelected.null` has the answer.
        null_reference: what these rows are, as in `flareclust.stability`.
        **settings: further arguments of `run`.

    Raises:
        UserError: as `run`; `k_range` is one number; or there cannot be such a comparison, as on real sites.
        JobFailed: as `run`.
    """
    if selection.parse_k(k_range)[1] is None:
        raise UserError(f"k_range: expected numbers of clusters such as range(2, 16), got {k_range!r}")
    check_null(null, null_reference, algorithm, k_range)
    if null:
        check_repeatable(algorithm, settings)
    result = run(algorithm, data, k_range, criterion=criterion, **settings)
    known = selection.summary(result.arrays, result.params) or {"k": [], "rules": {}}
    names = [name for name in known if name not in ("k", "rules")]
    scores = {k: {name: known[name][i] for name in names} for i, k in enumerate(known["k"])}
    if null:
        result = with_null_test(result, null_test(result, null, reference=null_reference))
    rule = selection.rule_of(result.arrays, str(result.experiment["criterion"]), result.params)
    return KSelected(result.k, rule, scores, known["rules"], result, result.null)
