"""FKM, figures 1(b), 3 and 4: the synthetic grid, split by location or by cluster.

The paper prints no numbers beside its figures, so what stands in the column of the paper is what its text says.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import Side, best_of, compare, spread, value
from benchmarks.papers.generators import Federation, deal, grid, nested
from benchmarks.papers.measures import history, nearest, solve, truth
from flareclust._foundation.seeding import stream
from flareclust.data.datasets import load
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, SITES, ROUNDS = 16, 5, 10
BETAS = ("0.1", "1", "10")
PUBLISHED, GENERATED = "published", "generated"
FKM, ROWS, KFED, ONE_ROUND, CENTRAL = "fkm", "fkm-rows", "kfed-k16", "kfed-k16-one-round", "central"
BEST = "kfed-best"

FKM_SETTINGS: Mapping[str, Any] = {"rounds": ROUNDS, "tol": 0.0}
#: The paper runs the published code of k-FED, whose server iterates, and gives each row to the nearest centroid.
KFED_SETTINGS: Mapping[str, Any] = {"lloyd_rounds": 30, "labels_by": "nearest"}

#: Algorithm and settings by the name of the method.
Methods = Mapping[str, tuple[str, Mapping[str, Any]]]
METHODS: Methods = {
    FKM: ("fkm", FKM_SETTINGS),
    ROWS: ("fkm", {**FKM_SETTINGS, "seeds": "rows"}),
    KFED: ("kfed", {**KFED_SETTINGS, "k_local": K}),
    ONE_ROUND: ("kfed", {"labels_by": "nearest", "k_local": K}),
    CENTRAL: ("central", {"n_init": 10}),
}
#: What the text says of a method: in words, what it is compared with, where it is said to be.
_SAID: Mapping[str, tuple[str, str, Side]] = {
    FKM: ("similar to central", CENTRAL, "near"),
    ROWS: (NOTHING, CENTRAL, None),
    KFED: ("below fkm", FKM, "below"),
    ONE_ROUND: (NOTHING, FKM, None),
    CENTRAL: (NOTHING, CENTRAL, None),
    BEST: ("below fkm", FKM, "below"),
}
#: How far apart means of the ARI may be and still be called similar.
CLOSE = 0.015

#: The federation of a seed.
Source = Callable[[int], Federation]

READING = (
    "`fkm` runs 10 rounds after its start (`tol=0`), `fkm-rows` with `seeds=rows`. `kfed-k16` is k-FED as its published "
    "code, which this paper used: the server iterates (`lloyd_rounds=30`), rows belong to the nearest centroid, k' = k = 16; "
    "`kfed-k16-one-round` has the one server round of k-FED's own paper. `central` has `n_init=10`. `ours` is the ARI over "
    "all rows, in parentheses the mean of the sites' own ARI weighted by their rows, which the authors' code measures. "
    f"Similar means within {CLOSE}."
)
_INFORMED = " `kfed-best` has the k' with the highest mean ARI, of k' = {}."


def figure1b(study: Study) -> Report:
    """Compare the methods on the grid, split by location."""
    groups = [
        {"data": data, "beta": beta}
        for data in (PUBLISHED, GENERATED)
        for beta in (BETAS[:1] if study.quick else BETAS)
    ]
    k_locals = _searched(study.quick)
    trials: list[study_trials.Trial] = []
    for group in groups:
        source = by_location(group["data"], group["beta"], 50, "1")
        trials += trials_of(group, source, study.seeds, {**METHODS, **_kfed(k_locals)})
    cells = study.cells(trials)
    return Report(
        "fkm-figure1b",
        "FKM, Figure 1(b): split by location",
        [line for group in groups for line in _method_lines(cells, group, k_locals)],
        _method_bars(cells, groups, k_locals, "data", "beta"),
        _method_notes(cells, groups, k_locals),
        "ARI on 16 clusters on a 4 x 4 grid, 50 points each, noise 1, five sites. `published`: the authors' own data and "
        "clients, so that only the algorithms' seeds differ. `generated`: new rows and locations for every seed "
        f"(partition `beta:B`). {READING}{_INFORMED.format(_listed(k_locals))}",
    )


def figure4(study: Study) -> Report:
    """Compare the methods where sites have 1, 4, 7, 10 and 16 clusters."""
    numbers = (1, 4, 7, 10, 16)
    k_locals = _searched(study.quick)

    def source(seed: int) -> Federation:
        rng = stream(seed, 0, "nested clusters")
        return nested(grid(1.0, 50, rng), numbers, rng)

    group = {"data": GENERATED, "clusters": ", ".join(map(str, numbers))}
    cells = study.cells(trials_of(group, source, study.seeds, {**METHODS, **_kfed(k_locals)}))
    smallest = min(len(rows) for rows in source(0).sites.values())
    return Report(
        "fkm-figure4",
        "FKM, Figure 4(b): sites with very different numbers of clusters",
        _method_lines(cells, group, k_locals),
        _method_bars(cells, [group], k_locals, "data", "clusters"),
        _method_notes(cells, [group], k_locals),
        "ARI on the grid, 50 points per cluster, noise 1, made anew for every seed: the i-th site has rows of the first "
        "1, 4, 7, 10 or 16 clusters, and a cluster's points are assigned evenly to the sites that have it. That gives the "
        f"smallest site {smallest} points, as in the paper. {READING}{_INFORMED.format(_listed(k_locals))}",
    )


def by_location(data: str, beta: str, points: int, noise: str) -> Source:
    """Return the source of the grid's rows split by location: the authors' own, or new ones for every seed."""

    @cache
    def published() -> Federation:
        return deal(load(f"garst_grid:beta{beta}_ppc{points}_noise{noise}"), "owners", SITES, np.random.default_rng(0))

    def generated(seed: int) -> Federation:
        rng = stream(seed, 0, "grid by location")
        return deal(grid(float(noise), points, rng), f"beta:{beta}", SITES, rng)

    return (lambda seed: published()) if data == PUBLISHED else generated


def trials_of(group: Mapping[str, str], source: Source, seeds: int, methods: Methods) -> list[study_trials.Trial]:
    """Return the trials of the methods on the federations of a source."""
    return [
        study_trials.Trial(
            {**group, "method": name},
            seed,
            {"algorithm": algorithm, "k": K, **params},
            _measure(source, algorithm, params, seed),
        )
        for name, (algorithm, params) in methods.items()
        for seed in range(seeds)
    ]


def _measure(
    source: Source, algorithm: str, params: Mapping[str, Any], seed: int
) -> Callable[[], study_trials.TrialResult]:
    def measure() -> study_trials.TrialResult:
        federation = source(seed)
        outcome = solve(algorithm, params, federation, K, seed)
        final = truth(federation, outcome.labels)
        if algorithm == "fkm":
            # Among the finals, because means over seeds are taken of these.
            for round_, centroids in enumerate(history(outcome)):
                final[f"ari_round_{round_}"] = truth(federation, nearest(federation, centroids))["ari"]
        cost = {"bytes_up": float(outcome.bytes_up), "rounds": float(outcome.n_rounds)}
        return study_trials.TrialResult({**final, "centroids_found": float(len(outcome.centroids))}, cost)

    return measure


# ---- a line, a group of bars and notes per group of methods ----


def _searched(quick: bool) -> Sequence[int]:
    return range(4, K + 1, 6) if quick else range(1, K + 1)


def _listed(k_locals: Sequence[int]) -> str:
    return "1 to 16" if len(k_locals) == K else ", ".join(map(str, k_locals))


def _kfed(k_locals: Sequence[int]) -> Methods:
    return {f"kfed-k{k_local}": ("kfed", {**KFED_SETTINGS, "k_local": k_local}) for k_local in k_locals}


def _own(
    cells: Sequence[study_trials.Cell], group: Mapping[str, str], k_locals: Sequence[int]
) -> dict[str, study_trials.Cell | None]:
    own = {name: find_cell(cells, **group, method=name) for name in METHODS}
    return {**own, BEST: best_of(cells, group, list(_kfed(k_locals)), "ari")}


def _method_lines(cells: Sequence[study_trials.Cell], group: Mapping[str, str], k_locals: Sequence[int]) -> list[Line]:
    own, lines = _own(cells, group, k_locals), []
    for name, cell in own.items():
        paper, other, side = _SAID[name]
        which = cell.cell["method"] if name == BEST and cell is not None else ""
        compared = "" if name == other else compare(cell, own[other], "ari", side, CLOSE)
        lines.append(Line({**group, "method": name}, paper, with_sites(cell), reading(which, compared)))
    return lines


def with_sites(cell: study_trials.Cell | None) -> str:
    """Return the ARI over all rows, and in parentheses that of the sites."""
    text = mean_std(cell, "ari", 3)
    return text if cell is None or "ari_sites" not in cell.mean else f"{text} ({cell.mean['ari_sites']:.3f})"


def _method_notes(
    cells: Sequence[study_trials.Cell], groups: Sequence[Mapping[str, str]], k_locals: Sequence[int]
) -> list[str]:
    owns = [_own(cells, group, k_locals) for group in groups]
    far = [own for own in owns if abs(value(own[FKM], "ari") - value(own[CENTRAL], "ari")) > CLOSE]
    above = [own for own in owns if max(value(own[KFED], "ari"), value(own[BEST], "ari")) >= value(own[FKM], "ari")]
    notes = []
    if far:
        notes.append(f"FKM is not similar to central in {len(far)} of {len(owns)} settings.")
    if above:
        notes.append(f"FKM is not above k-FED in {len(above)} of {len(owns)} settings.")
    lowest = min(value(own[KFED], "ari") for own in owns)
    if lowest < 0.8:
        notes.append(
            f"k-FED with k' = k falls to {lowest:.2f}: its server starts with one site's 16 centers and adds none, so that "
            "clusters which this site lacks get no center of their own. Iterating on the server repairs a part of it."
        )
    return notes


def _method_bars(
    cells: Sequence[study_trials.Cell],
    groups: Sequence[Mapping[str, str]],
    k_locals: Sequence[int],
    panel: str,
    bar: str,
) -> "Figure":
    names = list(dict.fromkeys(group[panel] for group in groups))
    figure, all_axes = figures.panels([f"{name} data" for name in names], size=(4.6, 2.9))
    for axes, name in zip(all_axes, names, strict=True):
        own = {group[bar]: _own(cells, group, k_locals) for group in groups if group[panel] == name}
        means = {shown: [value(one[shown], "ari") for one in own.values()] for shown in (FKM, KFED, BEST, CENTRAL)}
        spreads = {shown: [spread(one[shown], "ari") for one in own.values()] for shown in means}
        figures.bars(axes, [f"{bar} {label}" for label in own], means, spreads)
        axes.set_ylim(0, 1.05)
        axes.set_ylabel("ARI", fontsize=9)
    figures.legend(figure, all_axes[0])
    return figure
