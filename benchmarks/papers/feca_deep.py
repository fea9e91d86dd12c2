"""FeCA, Table 3: DeepFeCA against the same loop with other centroid steps, by linear evaluation."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, WORKERS, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import spread, standard_error, value
from benchmarks.papers.feca_rounds import IMAGES, TEST, evaluate, images, train_by_rounds
from flareclust._foundation.seeding import stream
from flareclust.data.partition import partition
from flareclust.engines.options import JobOptions
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, SITES, SEEDS = 10, 10, 3
SPLITS = ("iid", "dirichlet:0.3", "dirichlet:0.1")
METHODS = ("feca", "mavg", "ffcm", "kfed", "pooled")
RANDOM, CENTRAL = "random weights", "centralised"
#: Rounds after which features are evaluated; the last is the number of rounds.
EVALUATED = (0, 5, 10, 15)
SETTINGS: Mapping[str, Any] = {"epochs": 2}

#: Table 3 of the paper, CIFAR-10 with ResNet-18 and 150 rounds: linear accuracy in per cent by split.
PAPER = {
    "mavg": (53.6, 48.2, 45.1),
    "ffcm": (47.7, 50.1, 49.1),
    "kfed": (46.8, 50.0, 47.1),
    "feca": (55.3, 63.7, 59.9),
}


def table3(study: Study) -> Report:
    """Run DeepFeCA with each centroid step; the yardsticks are random weights and one site with all images."""
    names = ("digits",) if study.quick else ("digits", "mnist")
    seeds = range(min(study.seeds, SEEDS))
    settings = [(name, split, method) for name in names for split in SPLITS for method in METHODS]
    settings += [(name, "", CENTRAL) for name in names]
    # Each training holds one thread of torch and much of Python's lock: trials in processes take half the time.
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as processes:
        cells = study.cells([_trial(processes, *setting, seed) for setting in settings for seed in seeds])
    return Report(
        "feca-table3",
        "FeCA, Table 3: DeepFeCA by linear evaluation",
        [line for name in names for line in _lines(cells, name)],
        _picture(cells, names),
        _notes(cells, names),
        f"Ten sites, k = {K}, {EVALUATED[-1]} rounds of {SETTINGS['epochs']} epochs, network `small` ({len(seeds)} seeds). Digits: 1,257 images, "
        f"MNIST: {IMAGES:,} images; logistic regression on the frozen features of these images, accuracy in per cent on 540 "
        f"and {TEST:,} others. The paper's columns are CIFAR-10 with ResNet-18 and 150 rounds of 5 epochs, so only the order of the "
        "methods can be compared. NMI: of the final clusters of all sites' images.",
        seeds=len(seeds),
    )


def _trial(processes: Executor, name: str, split: str, method: str, seed: int) -> study_trials.Trial:
    cell = {"data": name, "split": split, "method": method}
    params = {**cell, **SETTINGS, "k": K, "rounds": EVALUATED[-1], "images": IMAGES}
    return study_trials.Trial(cell, seed, params, lambda: processes.submit(measure, name, split, method, seed).result())


def measure(name: str, split: str, method: str, seed: int) -> study_trials.TrialResult:
    """Return linear accuracy and NMI at the rounds of `EVALUATED` of one training."""
    own = images(name)
    index = {"all": np.arange(len(own.train.X))}
    if method != CENTRAL:
        index = partition(split, own.train.X, own.train.y, SITES, stream(seed, 0, "partition"))
    sites = {site: own.train.X[rows] for site, rows in index.items() if len(rows)}
    params = {**SETTINGS, "rounds": EVALUATED[-1], "centroids": "pooled" if method == CENTRAL else method}
    states, outcome = train_by_rounds(sites, params, JobOptions(k=K, seed=seed, assess=False, min_sites=1))
    spent = {"bytes_up": float(outcome.bytes_up), "rounds": float(outcome.n_rounds)}
    return study_trials.TrialResult(evaluate(own, states, EVALUATED), spent)


def _lines(cells: Sequence[study_trials.Cell], name: str) -> list[Line]:
    last = EVALUATED[-1]
    lines = []
    for number, split in enumerate(SPLITS):
        for method in METHODS:
            cell = find_cell(cells, data=name, split=split, method=method)
            paper = f"{PAPER[method][number]}" if method in PAPER else NOTHING
            ours = f"{mean_std(cell, f'accuracy_{last}')} (NMI {mean_std(cell, f'nmi_{last}', 2)})"
            lines.append(
                Line(
                    {"data": name, "split": split, "method": method}, paper, ours, _against(cells, name, split, method)
                )
            )
    start = find_cell(cells, data=name, split=SPLITS[0], method="feca")
    central = find_cell(cells, data=name, method=CENTRAL)
    lines.append(Line({"data": name, "split": "-", "method": RANDOM}, NOTHING, mean_std(start, "accuracy_0")))
    ours = f"{mean_std(central, f'accuracy_{last}')} (NMI {mean_std(central, f'nmi_{last}', 2)})"
    lines.append(Line({"data": name, "split": "-", "method": CENTRAL}, "80.9", ours))
    return lines


def _against(cells: Sequence[study_trials.Cell], name: str, split: str, method: str) -> str:
    """Return whether DeepFeCA is above a rival, as in the paper."""
    if method == "feca":
        return ""
    last = f"accuracy_{EVALUATED[-1]}"
    one, ours = (find_cell(cells, data=name, split=split, method=m) for m in (method, "feca"))
    if one is None or ours is None:
        return ""
    gap = value(ours, last) - value(one, last)
    word = "undecided" if abs(gap) <= 2 * standard_error(ours, one, last) else "agrees" if gap > 0 else "lower"
    return reading(f"feca {gap:+.1f}", word if method in PAPER else "")


def _notes(cells: Sequence[study_trials.Cell], names: Sequence[str]) -> list[str]:
    last = EVALUATED[-1]
    above, settings = [], [(name, split) for name in names for split in SPLITS]
    for name, split in settings:
        rivals = [find_cell(cells, data=name, split=split, method=m) for m in METHODS[1:-1]]
        ours = find_cell(cells, data=name, split=split, method="feca")
        if all(value(ours, f"accuracy_{last}") > value(one, f"accuracy_{last}") for one in rivals):
            above.append(f"{name} {split}")
    notes = [
        f"DeepFeCA is above the paper's three rivals in {len(above)} of {len(settings)} settings{': ' if above else ''}{', '.join(above)}."
    ]
    higher: dict[str, list[float]] = {method: [] for method in ("pooled", CENTRAL)}
    for name, split in settings:
        own = value(find_cell(cells, data=name, split=split, method="feca"), f"accuracy_{last}")
        for method, found in higher.items():
            where = {} if method == CENTRAL else {"split": split}
            found.append(value(find_cell(cells, data=name, method=method, **where), f"accuracy_{last}") - own)
    notes.append(
        f"The centroid step decides little: with k-means on the centroids of all sites (pooled) the accuracy is at most "
        f"{max(higher['pooled']):.1f} points higher than with feca, with one network trained on all images (centralised) up to "
        f"{max(higher[CENTRAL]):.1f}. The rest lies between averaged networks and one network, which also takes more updates in an epoch."
    )
    for name in names:
        ours = find_cell(cells, data=name, split="iid", method="feca")
        gain = value(ours, f"accuracy_{last}") - value(ours, "accuracy_0")
        notes.append(
            f"{name}, iid: {gain:+.1f} points of linear accuracy over random weights, and NMI from {value(ours, 'nmi_0'):.2f} to {value(ours, f'nmi_{last}'):.2f}."
        )
    return notes


def _picture(cells: Sequence[study_trials.Cell], names: Sequence[str]) -> "Figure":
    shown = [(name, split, key) for name in names for key in ("accuracy", "nmi") for split in SPLITS]
    titles = [f"{name}, {split}: {'linear accuracy (%)' if key == 'accuracy' else 'NMI'}" for name, split, key in shown]
    figure, all_axes = figures.panels(titles, columns=3, size=(3.4, 2.4))
    for axes, (name, split, key) in zip(all_axes, shown, strict=True):
        for number, method in enumerate((*METHODS, CENTRAL)):
            cell = find_cell(cells, data=name, method=method, **({} if method == CENTRAL else {"split": split}))
            means, spreads = ([f(cell, f"{key}_{round_}") for round_ in EVALUATED] for f in (value, spread))
            figures.line(axes, EVALUATED, means, spreads, label=method, number=number)
        axes.set_xlabel("rounds", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure
