"""FeCA's studies of sizes: k' of k-FED (Table 7, Figure 9), the number of clients (Tables 8 and 9, Figure 12), and how
often k-means on the pooled rows is stuck (Figure 10)."""

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np

from benchmarks.papers import feca_values as printed
from benchmarks.papers import figures
from benchmarks.papers.base import (
    NOTHING,
    Line,
    Report,
    Study,
    Value,
    agreement,
    agreements,
    find_cell,
    mean_only,
    mean_std,
    reading,
    with_found,
)
from benchmarks.papers.feca_methods import OnSites, kfed
from benchmarks.papers.feca_values import MEASURES, SCALE
from flareclust._foundation.seeding import stream
from flareclust.core.lloyd import kmeans
from flareclust.data import datasets
from flareclust.data.datasets import Dataset
from flareclust.experiment.plotting.style import PALETTE
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.protocol import registry


def _two_lines(
    about: Mapping[str, str], l2: Value, labels: Sequence[Value], cell: study_trials.Cell | None, settings: str
) -> list[Line]:
    """Return a line with the l2 and one with Purity and NMI."""
    return [
        Line(
            {**about, "measure": "l2"},
            str(l2),
            with_found(mean_std(cell, "l2", scale=SCALE), cell),
            reading(settings, agreement(l2, cell, "l2", SCALE)),
        ),
        Line(
            {**about, "measure": "Purity, NMI"},
            ", ".join(map(str, labels)),
            ", ".join(mean_only(cell, measure) for measure in MEASURES),
            reading(settings, agreements(labels, cell, MEASURES)),
        ),
    ]


def _series(
    cells: Sequence[study_trials.Cell | None], metric: str, scale: float = 1.0
) -> tuple[list[float], list[float]]:
    mean = [cell.mean.get(metric, nan) / scale if cell else nan for cell in cells]
    return mean, [cell.std.get(metric, nan) / scale if cell else nan for cell in cells]


# ---- Table 7, Figure 9 ----


def table7(study: Study) -> Report:
    """Try every k' of k-FED."""
    data, split = datasets.load("s1"), "dirichlet:0.3"
    trials = [trial for k in printed.K_LOCAL for trial in kfed(k).trials(data, split, study.seeds)]
    cells = study.cells(trials)
    found = [find_cell(cells, method=kfed(k).name) for k in printed.K_LOCAL]
    lines = []
    for i, k in enumerate(printed.K_LOCAL):
        labels = (printed.K_LOCAL_PURITY[i], printed.K_LOCAL_NMI[i])
        lines += _two_lines({"k'": str(k)}, printed.K_LOCAL_L2[i], labels, found[i], "labels_by=nearest")
    figure, (left, right) = figures.panels(["l2 / 10,000", "Purity and NMI"])
    figures.line(left, printed.K_LOCAL, *_series(found, "l2", SCALE), label="l2", number=0)
    figures.paper_line(left, printed.K_LOCAL, [value.mean for value in printed.K_LOCAL_L2])
    right.plot([], [], label="l2", color=PALETTE[0])  # for the legend of both
    for number, (metric, paper) in enumerate(
        zip(MEASURES, (printed.K_LOCAL_PURITY, printed.K_LOCAL_NMI), strict=True), 1
    ):
        figures.line(right, printed.K_LOCAL, *_series(found, metric), label=metric, number=number)
        figures.paper_line(right, printed.K_LOCAL, [value.mean for value in paper], "paper" if number == 1 else "_")
    left.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("k'", fontsize=8)
    figures.legend(figure, right)
    means = np.array(_series(found, "l2", SCALE)[0])
    best = printed.K_LOCAL[int(np.nanargmin(means))] if np.isfinite(means).any() else NOTHING
    notes = [
        (
            f"k-FED is far better than in the paper: the smallest mean l2 is {np.nanmin(means):.1f} at k' = {best}, where the "
            "paper's smallest is 58.1 at k' = 5. As in Table 1, the paper does not say how k-FED was run."
        )
    ]
    about = "k-FED on s1, dirichlet:0.3, ten clients: l2 / 10,000 with the number of centroids found, and Purity, NMI of the nearest centroids."
    return Report("feca-table7", "FeCA, Table 7 and Figure 9: k' of k-FED", lines, figure, notes, about)


# ---- Tables 8 and 9, Figure 12 ----


def table8(study: Study) -> Report:
    """Vary the number of clients, with 5 % of the rows each or with all rows among them."""
    data = datasets.load("s1")
    numbers = (1, 2, 5, 10, 20) if study.quick else printed.CLIENTS
    trials = [
        _clients(table, m).trial(data, {"table": table, "M": str(m)}, seed)
        for table in ("8", "9")
        for m in numbers
        for seed in range(study.seeds)
    ]
    cells = study.cells(trials)
    lines = []
    figure, panels = figures.panels(["Table 8: 5 % of the rows per client", "Table 9: 1/M of the rows per client"])
    for axes, table, paper, one in zip(
        panels,
        ("8", "9"),
        (printed.SHARE_5_L2, printed.SHARE_M_L2),
        (printed.SHARE_5_ONE, printed.SHARE_M_ONE),
        strict=True,
    ):
        found = [find_cell(cells, table=table, M=str(m)) for m in numbers]
        for m, cell in zip(numbers, found, strict=True):
            labels = one if m == 1 else printed.FROM_TWO
            settings = "k-means, n_init=1" if m == 1 else "n_init=1"
            lines += _two_lines({"table": table, "M": str(m)}, paper[m - 1], labels, cell, settings)
        figures.line(axes, numbers, *_series(found, "l2", SCALE), label="ours", number=0)
        figures.paper_line(axes, numbers, [paper[m - 1].mean for m in numbers])
        axes.set_xlabel("clients M", fontsize=8)
        axes.set_ylabel("l2 / 10,000", fontsize=8)
        axes.set_ylim(bottom=0)
    figures.legend(figure, panels[0])
    about = (
        "FeCA on s1: l2 / 10,000 with the number of centroids found, and Purity, NMI after one step of Lloyd's algorithm on all "
        "rows. Table 8: each client has 5 % of the rows, no row twice; Table 9: 1/M of them. M = 1 is k-means."
    )
    alone = mean_std(find_cell(cells, table="9", M="1"), "l2", scale=SCALE)
    notes = [
        (
            "M = 1 is one start of k-means. How many of ten starts are stuck is chance and decides its l2: with all rows "
            f"{alone} here and {printed.SHARE_M_L2[0]} in the paper."
        )
    ]
    return Report("feca-table8", "FeCA, Tables 8 and 9, Figure 12: the number of clients", lines, figure, notes, about)


def _clients(table: str, m: int) -> OnSites:
    share = 0.05 if table == "8" else None
    if m == 1:
        return OnSites(registry.get("central"), {"n_init": 1}, n_sites=1, share=share, polish=True)
    return OnSites(registry.get("feca"), n_sites=m, share=share, polish=True)


# ---- Figure 10 ----

SHARES = (1.0, 0.75, 0.5)


def figure10(study: Study) -> Report:
    """Count how often one start of k-means is stuck."""
    sets = [datasets.load(name) for name in printed.SETS]
    trials = [objective_trial(data, share, seed) for data in sets for share in SHARES for seed in range(study.seeds)]
    done = study.done(trials)
    lines = []
    figure, panels = figures.panels([f"{data.name}: objective / best" for data in sets])
    for axes, data in zip(panels, sets, strict=True):
        for number, share in enumerate(SHARES):
            cell = {"data": data.name, "rows": f"{100 * share:.0f} %"}
            own = [one.measured.final for one in done if one.measured is not None and one.trial.cell == cell]
            ratio = np.array([final["ratio"] for final in own], dtype=np.float64)
            values = np.array([final["objective"] for final in own], dtype=np.float64)
            stuck = int((ratio > 1.01).sum())
            ours = f"{stuck} of {len(own)} seeds; {values.min(initial=np.inf):.2e} to {values.max(initial=0):.2e}"
            lines.append(Line(cell, "frequently (figure only)", ours, "n_init=1; best of 20 starts on the same rows"))
            axes.plot(np.arange(len(own)), ratio, ".-", label=cell["rows"], color=PALETTE[number])
        axes.set_xlabel("seed", fontsize=8)
    figures.legend(figure, panels[0])
    about = (
        "One start of k-means on a part of the rows of all sites together. Ours: seeds that end more than 1 % above the best of "
        "20 starts, and the range of the objective (the sum of squared distances)."
    )
    notes = [
        "The paper prints no numbers here. That k-means with one start is often stuck, whatever the number of rows, holds."
    ]
    return Report(
        "feca-figure10", "FeCA, Figure 10: how often k-means on the pooled rows is stuck", lines, figure, notes, about
    )


def objective_trial(data: Dataset, share: float, seed: int) -> study_trials.Trial:
    """Return one start of k-means on a share of the rows, its objective beside that of the best of 20 starts."""

    def measure() -> study_trials.TrialResult:
        k = data.n_clusters or 1
        rows = stream(seed, 0, "partition").permutation(len(data.X))[: round(share * len(data.X))]
        X = data.X[rows]
        objective = kmeans(X, k, stream(seed, 0, "one start")).inertia
        best = kmeans(X, k, stream(seed, 0, "best"), n_init=20).inertia
        best = min(objective, best)
        return study_trials.TrialResult({"objective": objective, "best": best, "ratio": objective / best})

    cell = {"data": data.name, "rows": f"{100 * share:.0f} %"}
    return study_trials.Trial(cell, seed, {"figure": 10, "data": data.name, "share": share}, measure)
