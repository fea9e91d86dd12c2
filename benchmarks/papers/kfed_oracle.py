"""k-FED, figure 5 and Appendix B.2: how far apart a data set's own clusters are, and the oracle clustering.

The rule: of several k, take the one with the largest share of pairs of clusters whose c_rs exceeds c0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import Line, Report, Study, find_cell, reading
from benchmarks.papers.claims import value
from benchmarks.papers.measures import clustering_cost
from benchmarks.papers.samples import at_most
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import kmeans
from flareclust.core.runtime import one_thread
from flareclust.data.datasets import Dataset, load
from flareclust.evaluation.scores import separation_ratios
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

C0 = 0.5
ORACLE = "oracle"
#: Runs of k-means on the pooled rows, the best of which is the oracle clustering.
N_INIT = 5
ROWS, QUICK_ROWS = 10_000, 1_500
QUANTILES = tuple(range(0, 101, 5))


def sample(name: str, quick: bool) -> Dataset:
    """Return the 50 leading principal components of a part of a data set's rows."""
    return at_most(load(f"{name}:pca50"), QUICK_ROWS if quick else ROWS)


def oracle(data: Dataset, k: int, seed: int = 0) -> tuple[Dataset, float]:
    """Return the data set with its clustering into k by k-means for labels, and the k-means cost of that."""
    found = kmeans(data.X, k, np.random.default_rng(seed), n_init=N_INIT)
    clustered = Dataset(data.name, data.X, found.labels, owners=data.owners)
    return clustered, clustering_cost(data.X, found.labels)


def pair_ratios(data: Dataset) -> FloatArray:
    """Return c_rs of every pair of clusters of a labelled data set; m0 = 1 and k' = sqrt(k), factors of all pairs."""
    assert data.y is not None
    counts = np.bincount(data.y)
    means = np.column_stack([np.bincount(data.y, weights=x) for x in data.X.T]) / counts[:, None]
    residuals = data.X - means[data.y]
    with one_thread():
        norm = float(np.linalg.eigvalsh(residuals.T @ residuals)[-1])
    return separation_ratios(means, counts, norm)


def rule_trials(name: str, data: Dataset, candidates: Sequence[int], seeds: int) -> list[study_trials.Trial]:
    """Return the trials that measure c_rs of the clusterings of a data set into each number of clusters."""

    def trial(k: int, seed: int) -> study_trials.Trial:
        def measure() -> study_trials.TrialResult:
            ratios = pair_ratios(oracle(data, k, seed)[0])
            final = {f"q{q}": float(np.percentile(ratios, q)) for q in QUANTILES}
            shares = {"above_c0": float((ratios > C0).mean()), "below_1": float((ratios < 1).mean())}
            return study_trials.TrialResult({**final, **shares})

        params = {"data": f"{name}:pca50", "rows": len(data.X), "k": k, "n_init": N_INIT}
        return study_trials.Trial({"data": name, "k": str(k), "method": ORACLE}, seed, params, measure)

    return [trial(k, seed) for k in candidates for seed in range(seeds)]


def rule_cell(cells: Sequence[study_trials.Cell], name: str, k: int) -> study_trials.Cell | None:
    """Return the cell of such trials."""
    return find_cell(cells, data=name, k=str(k), method=ORACLE)


def chosen(cells: Sequence[study_trials.Cell], name: str, candidates: Sequence[int]) -> int:
    """Return the k that the rule picks for a data set; of equals the smallest."""
    return max(candidates, key=lambda k: (value(rule_cell(cells, name, k), "above_c0"), -k))


def figure5(study: Study) -> Report:
    """Draw the distribution of c_rs for several k on MNIST."""
    candidates = (4, 16) if study.quick else (4, 10, 16, 25, 36, 64)
    data = sample("mnist", study.quick)
    cells = study.cells(rule_trials("mnist", data, candidates, study.seeds))
    lines = []
    for k in candidates:
        cell = rule_cell(cells, "mnist", k)
        ours = " / ".join(f"{value(cell, f'q{q}'):.3f}" for q in (0, 50, 100))
        less_than = value(cell, "below_1")
        text = f"{100 * value(cell, 'above_c0'):.0f} % above {C0}"
        lines.append(
            Line({"k": str(k)}, "most below 1", ours, reading(text, "agrees" if less_than > 0.5 else "higher"))
        )
    notes = []
    if all(value(rule_cell(cells, "mnist", k), "above_c0") == 0 for k in candidates):
        notes.append(
            f"The rule of Appendix B.2 picks nothing here: no pair exceeds c0 = {C0} for any k. It cannot be used with a "
            "smaller c0 either, for c_rs falls about as 1 / k and the smallest k would always win. Whatever scale the "
            "paper's figure has, it must be another."
        )
    return Report(
        "kfed-figure5",
        "k-FED, Figure 5: separation of the clusters of MNIST",
        lines,
        _picture(cells, candidates),
        notes,
        f"{len(data.X)} of MNIST's training images, 50 principal components, clustered into k by k-means "
        f"(`n_init={N_INIT}`); the seeds are those of k-means. `ours`: smallest / median / largest c_rs of all pairs of "
        "clusters, with k' = sqrt(k) and m0 = 1. A larger m0 makes all of them smaller.",
    )


def _picture(cells: Sequence[study_trials.Cell], candidates: Sequence[int]) -> "Figure":
    figure, (axes,) = figures.panels(["MNIST: distribution of c_rs over the pairs of clusters"], size=(6.0, 3.2))
    for number, k in enumerate(candidates):
        cell = rule_cell(cells, "mnist", k)
        figures.line(axes, [value(cell, f"q{q}") for q in QUANTILES], QUANTILES, label=f"k = {k}", number=number)
    axes.axvline(C0, color=figures.PAPER_COLOUR, linewidth=1, linestyle="--", label=f"c0 = {C0}")
    axes.set_xlim(left=0)
    axes.set_xlabel("c_rs", fontsize=8)
    axes.set_ylabel("percent of pairs below", fontsize=8)
    figures.legend(figure, axes)
    return figure
