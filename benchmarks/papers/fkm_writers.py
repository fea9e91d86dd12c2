"""FKM, figure 5: digits by writer, judged without labels."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_std
from benchmarks.papers.claims import Side, best_of, compare, spread, value
from benchmarks.papers.fkm_grid import CENTRAL, FKM, FKM_SETTINGS, KFED_SETTINGS, Methods
from benchmarks.papers.generators import Federation, deal
from benchmarks.papers.measures import silhouettes, solve
from flareclust.data.datasets import load
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Measures, the digits they are written with, and their unit.
MEASURES: Mapping[str, float] = {"silhouette": 1.0, "simplified_silhouette": 1.0, "inertia": 1e8}
SILHOUETTES = ("silhouette", "simplified_silhouette")


def figure5(study: Study) -> Report:
    """Compare the methods on ten writers' digits."""
    writers, k = (4, 20) if study.quick else (10, 60)
    k_locals = (5, k) if study.quick else (5, 10, 15, 20, 30, 45, k)
    names = [f"kfed-k{k_local}" for k_local in k_locals]
    methods: Methods = {
        FKM: ("fkm", {**FKM_SETTINGS, "n_init": 3}),
        **{
            name: ("kfed", {**KFED_SETTINGS, "k_local": k_local}) for name, k_local in zip(names, k_locals, strict=True)
        },
        CENTRAL: ("central", {"n_init": 10}),
    }

    @cache
    def federation() -> Federation:
        return deal(load("femnist"), f"owners:{writers}", writers, np.random.default_rng(0))

    def trial(name: str, algorithm: str, params: Mapping[str, Any], seed: int) -> study_trials.Trial:
        def measure() -> study_trials.TrialResult:
            outcome = solve(algorithm, params, federation(), k, seed)
            return study_trials.TrialResult(silhouettes(federation(), outcome), {"bytes_up": float(outcome.bytes_up)})

        settings = {"algorithm": algorithm, "k": k, "writers": writers, **params}
        return study_trials.Trial({"method": name}, seed, settings, measure)

    cells = study.cells([trial(name, *methods[name], seed) for name in methods for seed in range(study.seeds)])
    return Report(
        "fkm-figure5",
        "FKM, Figure 5: the digits of ten writers",
        [line for name in methods for line in _lines(cells, name)],
        _picture(cells, list(methods)),
        _notes(cells, names),
        f"The first {writers} writers of the authors' subset of FEMNIST, raw pixels, k = {k}; the data are fixed, so the "
        "seeds are the algorithms'. The silhouette is over all rows; the simplified one is what the sites' sums give, with "
        "clusters known by their number, not by their place among those present (as in the published code). Rows "
        "belong to the nearest centroid. `fkm`: 10 rounds, `n_init=3`. `kfed-k15`: the published code of k-FED with k' = 15; "
        "of k-FED's two settings in the paper one is k' = k, the other is not named.",
    )


def _lines(cells: Sequence[study_trials.Cell], name: str) -> list[Line]:
    cell, fkm, central = (find_cell(cells, method=one) for one in (name, FKM, CENTRAL))
    claim: tuple[str, study_trials.Cell | None, Side] = ("below fkm", fkm, "below")
    if name in (FKM, CENTRAL):
        claim = ("below central", central, "below") if name == FKM else (NOTHING, None, None)
    lines = []
    for measure, scale in MEASURES.items():
        judged = measure in SILHOUETTES
        heading = measure.replace("_", " ") if judged else "inertia / 100,000,000"
        compared = compare(cell, claim[1], measure, claim[2]) if judged else ""
        ours = mean_std(cell, measure, 3, scale)
        lines.append(Line({"method": name, "measure": heading}, claim[0] if judged else NOTHING, ours, compared))
    return lines


def _notes(cells: Sequence[study_trials.Cell], names: Sequence[str]) -> list[str]:
    tuned = best_of(cells, {}, names, "silhouette")
    fkm, central = (find_cell(cells, method=name) for name in (FKM, CENTRAL))
    if tuned is None or fkm is None or central is None:
        return []
    notes = []
    for metric in SILHOUETTES:
        ours, best, pooled = (value(cell, metric) for cell in (fkm, tuned, central))
        word = metric.replace("_", " ")
        if best >= ours:
            notes.append(
                f"By the {word}, FKM ({ours:.3f}) is not above k-FED at its best k', {tuned.cell['method']} ({best:.3f})."
            )
        if ours >= pooled:
            notes.append(f"By the {word}, FKM ({ours:.3f}) is not below central ({pooled:.3f}).")
    if value(fkm, "inertia") < value(tuned, "inertia"):
        notes.append(
            "The silhouette is not what any of the methods minimises: by inertia, FKM is "
            f"{100 * (value(fkm, 'inertia') / value(central, 'inertia') - 1):+.1f} % and {tuned.cell['method']} "
            f"{100 * (value(tuned, 'inertia') / value(central, 'inertia') - 1):+.1f} % off central."
        )
    return notes


def _picture(cells: Sequence[study_trials.Cell], names: Sequence[str]) -> "Figure":
    figure, all_axes = figures.panels([metric.replace("_", " ") for metric in SILHOUETTES], size=(5.4, 2.8))
    for axes, metric in zip(all_axes, SILHOUETTES, strict=True):
        own = [find_cell(cells, method=name) for name in names]
        heights, spreads = [value(cell, metric) for cell in own], [spread(cell, metric) for cell in own]
        figures.bars(axes, [name.replace("-", "\n") for name in names], {"ours": heights}, {"ours": spreads})
    return figure
