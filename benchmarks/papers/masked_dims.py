"""The DIM sets of other sizes than that of the paper's tables: 32, 512 and 1,024 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_std
from benchmarks.papers.claims import spread, value
from benchmarks.papers.masked_setups import ACCURACY, PERFECT, SECONDS, loaded, masked_as_printed, proxy_as_printed
from benchmarks.papers.masked_setups import trials as trials_of
from benchmarks.papers.masked_values import SetUp, dim
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (32, 512, 1024)


def dims(study: Study) -> Report:
    """Run both algorithms under both assumptions on each size."""
    seeds = 1 if study.quick else study.seeds
    chosen = [dim(SIZES[0], "1")] if study.quick else [dim(d, a) for d in SIZES for a in ("1", "2")]
    data = loaded(chosen)
    runs: list[study_trials.Trial] = []
    for one in chosen:
        for method in (masked_as_printed(one), proxy_as_printed(one)):
            runs += trials_of(one, method, data[one.data], seeds)
    cells = study.cells(runs)
    lines = [_line(cells, one, name) for one in chosen for name in ("masked", "proxy")]
    return Report(
        "masked-dims",
        "Masked: DIM sets of other sizes",
        lines,
        _picture(cells, chosen),
        _notes(cells),
        "As Tables 2 to 5, on the DIM sets with 32, 512 and 1,024 columns, for which the paper prints nothing. `ours`: the share "
        "of local clusters grouped rightly (E1 or E4), the accuracy (E2 or E5, %), and the relative distance (E3).",
        seeds=seeds,
    )


def _aggregation(method: str) -> str:
    return "e1" if method == "masked" else "e4"


def _line(cells: Sequence[study_trials.Cell], set_up: SetUp, method: str) -> Line:
    cell = find_cell(cells, **set_up.cell, method=method)
    ours = [
        mean_std(cell, _aggregation(method), 3),
        mean_std(cell, ACCURACY, 2),
        mean_std(cell, "relative_distance", 5),
    ]
    return Line({**set_up.cell, "method": method}, NOTHING, "; ".join(ours))


def _notes(cells: Sequence[study_trials.Cell]) -> list[str]:
    odd = [cell for cell in cells if value(cell, PERFECT) < 1 or value(cell, ACCURACY) < 100]
    if not odd:
        return []
    listed = [
        f"`{cell.cell['method']}` on {cell.cell['data']} under Assumption {cell.cell['assumption']} (all local clusters with "
        f"{value(cell, PERFECT):.0%} of the seeds, and {value(cell, ACCURACY):.2f} % of the rows)"
        for cell in odd
    ]
    notes = [f"Not everything is right with {'; '.join(listed)}."]
    if any(cell.cell["data"] == "DIM32" and value(cell, PERFECT) < 1 for cell in odd):
        notes.append(
            "With 32 columns, neighbouring sites have 2 in common under Assumption 1. Two of the 16 clusters may nearly coincide in "
            "them, and are then confused: it is Assumption 8 that does not hold."
        )
    return notes


def _picture(cells: Sequence[study_trials.Cell], chosen: Sequence[SetUp]) -> "Figure":
    figure, (accuracy, seconds) = figures.panels(["accuracy over all rows, %", "seconds: slowest site and server"])
    names = [f"{one.name} A{one.assumption}" for one in chosen]
    for axes, metric in ((accuracy, ACCURACY), (seconds, SECONDS)):
        own = {name: [find_cell(cells, **one.cell, method=name) for one in chosen] for name in ("masked", "proxy")}
        means = {name: [value(cell, metric) for cell in row] for name, row in own.items()}
        spreads = {name: [spread(cell, metric) for cell in row] for name, row in own.items()}
        figures.bars(axes, names, means, spreads)
        axes.tick_params(axis="x", labelsize=6)
    figures.legend(figure, accuracy)
    return figure
