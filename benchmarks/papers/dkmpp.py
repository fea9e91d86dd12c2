"""Armacki and Kar, "Toward Understanding the Improved Robustness to Initialization in Distributed Clustering", again.

The paper has theorems and no experiments: what is measured is what they bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Entry, Line, Report, Study, find_cell, reading
from benchmarks.papers.claims import value
from benchmarks.papers.dkmpp_bounds import covered, mse_bound, uncovered_bound
from benchmarks.papers.generators import bounded, bounded_variance
from benchmarks.papers.measures import solve
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.aggregators.dkmpp import separability
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, ROWS, RADIUS, POWER = 16, 20, 1.0, 1.0
VARIANCE = bounded_variance(RADIUS, POWER)
#: Federations per seed, each with new rows.
REPEATS, FEWER = 10, 4
USERS = (1, 2, 3, 4, 8, 16)
#: What Theorem 1 needs of the server's clusterer; r = 6 R satisfies r >= 2 (alpha + 1) R.
ALPHA = 2.0

LETTER, MEANS = "rows", "means"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    LETTER: {"seeds": "rows", "greedy": False, "min_count": 1},
    "rows, greedy": {"seeds": "rows", "min_count": 1},
    MEANS: {},
}
CLUSTERERS = ("kmeans", "spectral", "convex")


@dataclass(frozen=True)
class Layout:
    """Sixteen populations on a 4 x 4 grid.

    Attributes:
        name: for the table.
        r: smallest distance of two means.
    """

    name: str
    r: float

    @property
    def means(self) -> FloatArray:
        """Return the population means (16, 2)."""
        return self.r * np.array(list(product(range(4), repeat=2)), dtype=np.float64)

    @property
    def bound(self) -> float:
        """Return Lemma 1's bound for one user."""
        return uncovered_bound(K, self.r, RADIUS, self.largest)

    @property
    def largest(self) -> float:
        """Return D, the largest distance of two means."""
        return float(np.linalg.norm(self.means[-1] - self.means[0]))


#: Theorem 1 holds for the first; for the second Lemma 1 only, whose Assumption 2 asks for r > 2.45 R.
FAR, NEAR = Layout("r = 6 R", 6.0 * RADIUS), Layout("r = 2.5 R", 2.5 * RADIUS)


def coverage(study: Study) -> Report:
    """Measure how often populations stay without a seed, and how far the centroids are from the means."""
    users, repeats = (USERS[:3], FEWER) if study.quick else (USERS, REPEATS)
    layouts = (FAR, NEAR)
    trials = [
        _trial(layout, variant, "kmeans", m, seed, repeats)
        for layout in layouts
        for variant in VARIANTS
        for m in users
        for seed in range(study.seeds)
    ]
    clusterers = [] if study.quick else CLUSTERERS[1:]
    trials += [_trial(FAR, LETTER, name, 8, seed, FEWER) for name in clusterers for seed in range(study.seeds)]
    cells = study.cells(trials)
    lines = [
        line
        for layout in layouts
        for variant in VARIANTS
        for m in users
        for line in (_coverage_line(cells, layout, variant, m), _mse_line(cells, layout, variant, m))
    ]
    lines += [_clusterer_line(cells, name) for name in clusterers]
    return Report(
        "dkmpp-coverage",
        "Distributed k-means++: Lemma 1 and Theorem 1",
        lines,
        _picture(cells, layouts, users),
        _notes(cells, users),
        f"{K} populations on a 4 x 4 grid, {ROWS} rows of each at every user, at most R = {RADIUS:g} from their mean "
        f"(distance R u with u uniform), so sigma^2 = {VARIANCE:.3f}; r is the smallest distance of two means. "
        f"{repeats} federations per seed. `rows`: the paper's letter (`seeds=rows`, `greedy=False`, `min_count=1`); "
        "`rows, greedy`: each seed the best of several draws; `means`: what flareclust does by default, greedy and with the "
        "means of the seeds' cells. P is the share of populations that no user has a seed of, for `means` "
        "that no sent mean is nearest to. The MSE is that of the centroid nearest to each population's mean, averaged over "
        "the populations. alpha is that of the seeds under their true populations (Definition 1), over the federations "
        "that covered all: the smallest of a seed and their mean, both averaged over the seeds. `paper` is the bound. "
        "Where P is 0, nothing is drawn.",
    )


def _trial(layout: Layout, variant: str, clusterer: str, m: int, seed: int, repeats: int) -> study_trials.Trial:
    params = {**VARIANTS[variant], "clusterer": clusterer}
    cell = {"means": layout.name, "seeds": variant, "clusterer": clusterer, "users": str(m)}
    settings = {"algorithm": "dkmpp", "r": layout.r, "rows": ROWS, "power": POWER, "m": m, "repeats": repeats, **params}
    return study_trials.Trial(cell, seed, settings, _measure(layout, params, m, seed, repeats))


def _measure(
    layout: Layout, params: Mapping[str, Any], m: int, seed: int, repeats: int
) -> Callable[[], study_trials.TrialResult]:
    def measure() -> study_trials.TrialResult:
        means = layout.means
        missed, errors, exact, alphas = [], [], [], []
        for repeat in range(repeats):
            federation = bounded(means, RADIUS, ROWS, m, stream(seed, repeat, f"bounded {m}"), POWER)
            # Its own seed for every federation, or all would draw the same uniform numbers.
            outcome = solve("dkmpp", params, federation, K, 1000 * seed + repeat, assess=False)
            seeds, groups = outcome.arrays["received_centroids"], outcome.arrays["received_group"]
            found = covered(seeds, means)
            missed.append(float((~found).mean()))
            squared = ((means[:, None] - outcome.centroids[None]) ** 2).sum(axis=2).min(axis=1)
            errors.append(float(squared.mean()))
            if found.all():
                population = _nearest(seeds, means)
                alphas.append(separability(seeds, population))
                exact.append(_same(population, groups))
        finite = [alpha for alpha in alphas if np.isfinite(alpha)]
        final: dict[str, float | None] = {"uncovered": float(np.mean(missed)), "mse": float(np.mean(errors))}
        final |= {"exact": float(np.mean(exact)) if exact else None}
        final |= {"alpha": float(np.mean(finite)), "alpha_min": min(finite)} if finite else {}
        return study_trials.TrialResult(final)

    return measure


def _nearest(seeds: FloatArray, means: FloatArray) -> IntArray:
    nearest: IntArray = ((seeds[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)
    return nearest


def _same(a: IntArray, b: IntArray) -> bool:
    """Return whether two labellings are the same partition."""
    pairs = len(set(zip(a.tolist(), b.tolist(), strict=True)))
    return pairs == len(set(a.tolist())) == len(set(b.tolist()))


def _cell(
    cells: Sequence[study_trials.Cell], layout: Layout, variant: str, m: int, clusterer: str = "kmeans"
) -> study_trials.Cell | None:
    return find_cell(cells, means=layout.name, seeds=variant, clusterer=clusterer, users=str(m))


def _coverage_line(cells: Sequence[study_trials.Cell], layout: Layout, variant: str, m: int) -> Line:
    cell = _cell(cells, layout, variant, m)
    one, ours = value(_cell(cells, layout, variant, 1), "uncovered"), value(cell, "uncovered")
    group = {"means": layout.name, "seeds": variant, "users": str(m), "measure": "P(uncovered)"}
    # Lemma 1 is about Algorithm 1: seeds that are rows, each drawn once.
    bound = layout.bound**m
    paper = f"at most {bound:.3f} (Lemma 1)" if variant == LETTER else NOTHING
    word = ("agrees" if ours <= bound else "higher") if variant == LETTER else ""
    expected = f"p1^m = {one**m:.2g}" if m > 1 else ""
    return Line(group, paper, f"{ours:.4f}", reading(expected, word))


def _mse_line(cells: Sequence[study_trials.Cell], layout: Layout, variant: str, m: int) -> Line:
    cell = _cell(cells, layout, variant, m)
    ours = value(cell, "mse")
    group = {"means": layout.name, "seeds": variant, "users": str(m), "measure": "MSE"}
    paper, word = NOTHING, ""
    if variant == LETTER and layout is FAR:
        bound = mse_bound(K, m, layout.r, RADIUS, layout.largest, VARIANCE, ALPHA)
        paper, word = f"at most {bound:.4g} (Theorem 1)", "agrees" if ours <= bound else "higher"
    text = f"{'below' if ours < VARIANCE else 'above'} sigma^2"
    return Line(group, paper, f"{ours:.4f}; {_alpha(cell)}", reading(text, word))


def _alpha(cell: study_trials.Cell | None) -> str:
    if cell is None or "alpha" not in cell.mean:
        return "alpha infinite or undefined"
    return f"alpha {value(cell, 'alpha_min'):.2f}, {value(cell, 'alpha'):.2f}"


def _clusterer_line(cells: Sequence[study_trials.Cell], name: str) -> Line:
    cell = _cell(cells, FAR, LETTER, 8, name)
    exact = value(cell, "exact")
    group = {"means": FAR.name, "seeds": LETTER, "users": "8", "measure": f"exact groups, {name}"}
    word = "agrees" if exact == 1 else "lower"
    admissible = "alpha of the order sqrt(m K)" if name == "spectral" else "alpha of the order m K"
    return Line(group, f"always, at {admissible}", f"{100 * exact:.0f} % of runs; {_alpha(cell)}", word)


def _notes(cells: Sequence[study_trials.Cell], users: Sequence[int]) -> list[str]:
    far = {m: value(_cell(cells, FAR, LETTER, m), "mse") for m in users}
    means = {m: value(_cell(cells, FAR, MEANS, m), "mse") for m in users}
    if not all(np.isfinite(mse) for mse in (*far.values(), *means.values())):
        return []
    less_than = [m for m in users if far[m] < VARIANCE]
    gain = np.mean([far[m] / means[m] for m in users[1:]])
    last = users[-1]
    bound = mse_bound(K, last, FAR.r, RADIUS, FAR.largest, VARIANCE, ALPHA)
    chance = value(_cell(cells, FAR, LETTER, 1), "uncovered")
    exact = 100 * np.nanmean([value(_cell(cells, FAR, LETTER, m), "exact") for m in users[1:]])
    loose = (
        f"The bounds hold and say little: at r = 6 R one user leaves a population out with probability {chance:.3f}, where "
        f"Lemma 1 has at most {FAR.bound:.3f}; for {last} users Theorem 1 has an MSE of at most {bound:.0f}, which is more than "
        f"D^2 = {FAR.largest**2:.0f}, and {far[last]:.3f} is measured."
    )
    optimal = (
        f"An MSE below sigma^2, the paper's optimum for a single point, is reached from m = {min(less_than)} on; it then falls "
        "about as 1 / m, for several seeds are averaged (Remark 2)."
        if less_than
        else "The MSE stays above sigma^2."
    )
    gained = (
        f"Means of cells in place of rows, which flareclust sends by default, make the MSE {gain:.0f} times smaller."
    )
    grouped = (
        "k-means on the server is not admissible in the paper's sense, for it may end in a local optimum. At r = 6 R it "
        f"grouped all seeds by their populations in {exact:.1f} % of the runs that covered all of them."
    )
    return [loose, optimal, gained, grouped]


def _picture(cells: Sequence[study_trials.Cell], layouts: Sequence[Layout], users: Sequence[int]) -> "Figure":
    titles = [
        f"{what}, {layout.name}" for layout in layouts for what in ("P(population uncovered)", "MSE of the centroids")
    ]
    figure, all_axes = figures.panels(titles, size=(4.6, 2.8))
    for row, layout in enumerate(layouts):
        chances, errors = all_axes[2 * row : 2 * row + 2]
        for number, variant in enumerate(VARIANTS):
            own = [_cell(cells, layout, variant, m) for m in users]
            shares = np.array([value(cell, "uncovered") for cell in own])
            figures.line(chances, users, np.where(shares > 0, shares, np.nan), label=variant, number=number)
            figures.line(errors, users, [value(cell, "mse") for cell in own], label=variant, number=number)
        figures.paper_line(chances, users, [layout.bound**m for m in users], "bound")
        errors.axhline(VARIANCE, color="#777777", linewidth=1, linestyle=":", label="sigma^2")
        if layout is FAR:
            bounds = [mse_bound(K, m, layout.r, RADIUS, layout.largest, VARIANCE, ALPHA) for m in users]
            figures.paper_line(errors, users, bounds, "bound")
        for axes in (chances, errors):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(users, [str(m) for m in users])
            axes.minorticks_off()
            axes.set_xlabel("users m", fontsize=8)
    figures.legend(figure, all_axes[1])
    return figure


ENTRIES = (Entry("dkmpp-coverage", ("dkmpp-lemma1", "dkmpp-theorem1"), "Lemma 1 and Theorem 1", coverage),)
