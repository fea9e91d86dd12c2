"""What Algorithms 1 and 2 are worth: the paper's set-ups beside what needs no new algorithm, and what no federation may do."""

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from benchmarks.papers import figures, masked_bounds
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_only, mean_std, reading
from benchmarks.papers.claims import compare, spread, value
from benchmarks.papers.masked_bounds import ALONE, TRUE
from benchmarks.papers.masked_setups import ACCURACY, CENTRAL, MEGABYTES, SECONDS, Method, loaded
from benchmarks.papers.masked_setups import trials as trials_of
from benchmarks.papers.masked_values import ACCURACY as PRINTED
from benchmarks.papers.masked_values import QMNIST, SetUp, set_ups
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMON, IMPUTED, KPOD = (Method(name, name) for name in ("fkm-common", "fkm-imputed", "kpod"))
NAMES = ("masked", "proxy", COMMON.name, IMPUTED.name, KPOD.name, CENTRAL.name, TRUE, ALONE)
#: Seeds of k-POD on the 18,000 images, where a run takes more than a minute.
SLOW_SEEDS = 3


def baselines(study: Study) -> Report:
    """Run all methods on all set-ups."""
    chosen = [one for a in ("1", "2") for one in set_ups(a)[: 1 if study.quick else None]]
    seeds = 1 if study.quick else study.seeds
    data = loaded(chosen, study.quick)
    runs: list[study_trials.Trial] = []
    for one in chosen:
        for method in methods(one):
            runs += trials_of(one, method, data[one.data], seeds_of(one, method, seeds))
        runs += masked_bounds.trials(one, data[one.data], seeds)
    cells = study.cells(runs)
    return Report(
        "masked-baselines",
        "Masked: beside simpler ways, and beside pooled rows",
        [
            _line(cells, one, name)
            for one in chosen
            for name in (*(method.name for method in methods(one)), TRUE, ALONE)
        ],
        _picture(cells, chosen),
        _notes(cells, chosen),
        "The set-ups of Tables 2 to 5; the paper compares with centralised k-means only. `fkm-common` is federated k-means on the "
        "columns that all sites have (there are none under Assumption 1), `fkm-imputed` on all columns with the mean of the others "
        "where a site has none. `kpod` and `central` see the pooled rows, `central` without the gaps. All with their defaults "
        "(`masked` chooses its method); the sites of DIM128 find their number of clusters by the silhouette. `ours`: accuracy over "
        "all rows (%); the relative distance of the centroids over the entries that are known (E3), not measured of `central`; "
        "seconds of the slowest site and the server; MB that the sites send, the rows themselves for these two. "
        f"`{TRUE}` and `{ALONE}` are no methods but bounds, which know the classes: rows by the nearest of the classes' own centroids "
        "(equation 1), and each site's own k-means with its clusters named by its own classes.",
        seeds=seeds,
    )


def methods(set_up: SetUp) -> tuple[Method, ...]:
    """Return what can be run on a set-up."""
    ours = [Method(name, name, set_up.local) for name in ("masked", "proxy")]
    simple = [IMPUTED] if set_up.assumption == "1" else [COMMON, IMPUTED]
    return (*ours, *simple, KPOD, CENTRAL)


def seeds_of(set_up: SetUp, method: Method, seeds: int) -> int:
    """Return how many seeds a method has."""
    slow = method is KPOD and (set_up.name, set_up.assumption) == (QMNIST, "1")
    return min(seeds, SLOW_SEEDS) if slow else seeds


def _line(cells: Sequence[study_trials.Cell], set_up: SetUp, name: str) -> Line:
    cell = find_cell(cells, **set_up.cell, method=name)
    ours = [mean_std(cell, ACCURACY, 2)]
    if name not in (TRUE, ALONE):
        ours += [mean_only(cell, "relative_distance", 3)]
        ours += [f"{mean_only(cell, SECONDS, 2)} s", f"{mean_only(cell, MEGABYTES, 2)} MB"]
    masked = find_cell(cells, **set_up.cell, method="masked")
    compared = "" if name == "masked" else compare(cell, masked, ACCURACY, digits=2)
    few = f"{cell.n} seeds" if cell is not None and masked is not None and 0 < cell.n < masked.n else ""
    return Line({**set_up.cell, "method": name}, NOTHING, "; ".join(ours), reading(few, compared))


def _notes(cells: Sequence[study_trials.Cell], chosen: Sequence[SetUp]) -> list[str]:
    def less_than(name: str, other: str, metric: str, assumption: str) -> tuple[int, int]:
        """Return in how many set-ups the first has a lower mean than the other, and how many have both."""
        pairs = [
            [value(find_cell(cells, **one.cell, method=method), metric) for method in (name, other)]
            for one in chosen
            if one.assumption in assumption
        ]
        known = [(a, b) for a, b in pairs if not (isnan(a) or isnan(b))]
        return sum(a < b for a, b in known), len(known)

    faster, both = less_than("masked", "proxy", SECONDS, "12")
    notes = [f"The paper finds Algorithm 1 faster than Algorithm 2. Here it is in {faster} of {both} set-ups."]
    for name in (IMPUTED.name, KPOD.name):
        worse, both = less_than(name, "masked", ACCURACY, "1")
        notes.append(f"Under Assumption 1 `{name}` has a lower accuracy than `masked` in {worse} of {both} set-ups.")
    worse, both = less_than(COMMON.name, "masked", ACCURACY, "2")
    notes.append(
        f"Under Assumption 2 `{COMMON.name}` has a lower accuracy than `masked` in {worse} of {both} set-ups. The columns that all "
        "sites have are the most important ones there, so that they may do alone; but it has no centroids in the others."
    )
    found = [
        value(find_cell(cells, data=QMNIST, assumption="1", method=name), ACCURACY) for name in (TRUE, ALONE, "masked")
    ]
    if not any(map(isnan, found)):
        paper, lost = PRINTED["masked", QMNIST, "1"], found[1] - found[2]
        where = f"and {lost:.2f} points in the aggregation" if lost > 0 else "not in the aggregation"
        notes.append(
            f"On QMNIST under Assumption 1 the classes' own centroids reach {found[0]:.2f} % with our columns, the sites alone "
            f"{found[1]:.2f} %, `masked` {found[2]:.2f} %; the paper has {paper} % for Algorithm 1. What `masked` lacks of the first "
            f"is lost in the sites' own k-means, {where}."
        )
    return notes


def _picture(cells: Sequence[study_trials.Cell], chosen: Sequence[SetUp]) -> "Figure":
    figure, (axes,) = figures.panels(["accuracy over all rows, %"], size=(9.0, 3.4))
    own = {name: [find_cell(cells, **one.cell, method=name) for one in chosen] for name in NAMES}
    means = {name: [value(cell, ACCURACY) for cell in row] for name, row in own.items()}
    spreads = {name: [spread(cell, ACCURACY) for cell in row] for name, row in own.items()}
    figures.bars(axes, [f"{one.name} A{one.assumption}" for one in chosen], means, spreads)
    axes.set_ylim(0, 105)
    figures.legend(figure, axes)
    return figure
