"""What decides DeepFeCA's accuracy: one change at a time, from other centroids and other k to the true classes as labels."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, WORKERS, Line, Report, Study, find_cell, mean_only, mean_std
from benchmarks.papers.claims import spread, value
from benchmarks.papers.feca_rounds import TEST, evaluate, images, train_by_rounds
from flareclust._foundation.extras import require
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import IntArray
from flareclust.data.partition import partition
from flareclust.engines.options import JobOptions
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, SITES, SEEDS, IMAGES = 10, 5, 2, 500
EPOCHS, ROUNDS, QUICK_ROUNDS = 2, 10, 2
IID, SKEWED = "iid", "dirichlet:0.1"
#: The batch of one site with all images that makes as many updates as sites with a fifth of them each.
ALL_AT_ONCE = 250


@dataclass(frozen=True)
class Change:
    """One training that differs from DeepFeCA's defaults.

    Attributes:
        settings: of DeepFeCA.
        k: number of clusters.
        noise: share of the labels that are drawn at random, where the others are the true classes; None for pseudo-labels.
        one_site: whether one site has all images.
        splits: how the images are assigned to sites.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    k: int = K
    noise: float | None = None
    one_site: bool = False
    splits: tuple[str, ...] = (IID,)


BASE, TRUE, HALF, RANDOM = "feca", "true classes", "half of the labels at random", "random labels"
ONE, ONE_SLOW = "one site", "one site, batch=250"
CHANGES: Mapping[str, Change] = {
    BASE: Change(splits=(IID, SKEWED)),
    TRUE: Change(noise=0.0, splits=(IID, SKEWED)),
    HALF: Change(noise=0.5),
    RANDOM: Change(noise=1.0),
    ONE: Change({"centroids": "pooled"}, one_site=True),
    ONE_SLOW: Change({"centroids": "pooled", "batch": ALL_AT_ONCE}, one_site=True),
    **{name: Change({"centroids": name}) for name in ("pooled", "kfed", "mavg", "ffcm")},
    "k=20": Change(k=20),
    "temperature=0.5": Change({"temperature": 0.5}),
}
#: The groups of curves.
PANELS: Mapping[str, tuple[str, ...]] = {
    "centroid steps": (BASE, "mavg", "ffcm", "kfed", "pooled"),
    "settings": (BASE, "k=20", "temperature=0.5"),
    "yardsticks": (BASE, ONE, ONE_SLOW, TRUE, HALF, RANDOM),
}


def ablation(study: Study) -> Report:
    """Train DeepFeCA with one change at a time, and evaluate its features after every round."""
    require("deep", "the training of networks for feca-ablation")
    rounds, seeds = QUICK_ROUNDS if study.quick else ROUNDS, range(min(study.seeds, SEEDS))
    settings = [(name, split) for name, change in CHANGES.items() for split in change.splits]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as processes:
        cells = study.cells([_trial(processes, *setting, seed, rounds) for seed in seeds for setting in settings])
    return Report(
        "feca-ablation",
        "FeCA, Table 3: what decides DeepFeCA's accuracy",
        [_random_weights(cells), *(_line(cells, name, split, rounds) for name, split in settings)],
        _picture(cells, rounds),
        _notes(cells, rounds),
        f"A small study: {IMAGES:,} images of MNIST at {SITES} sites, k = {K}, {rounds} rounds of {EPOCHS} epochs, network `small`, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}; "
        f"linear accuracy in per cent on {TEST:,} other images, and NMI, as in Table 3. Each line changes one thing. `{TRUE}` and those with "
        "labels at random train with these in the place of pseudo-labels, on fixed orthogonal prototypes. "
        f"`{ONE}` has all images and k-means on its embeddings; with batch={ALL_AT_ONCE} it makes as many updates as a site with a fifth of the images.",
        seeds=len(seeds),
    )


def _trial(processes: Executor, name: str, split: str, seed: int, rounds: int) -> study_trials.Trial:
    cell = {"change": name, "split": split}
    params = {**cell, "k": CHANGES[name].k, "epochs": EPOCHS, "rounds": rounds, "images": IMAGES}
    return study_trials.Trial(cell, seed, params, lambda: processes.submit(measure, name, split, seed, rounds).result())


def measure(name: str, split: str, seed: int, rounds: int) -> study_trials.TrialResult:
    """Return linear accuracy and NMI after every round of one training."""
    change, own = CHANGES[name], images("mnist", IMAGES)
    index = {"all": np.arange(len(own.train.X))}
    if not change.one_site:
        index = partition(split, own.train.X, own.train.y, SITES, stream(seed, 0, "partition"))
    sites = {site: own.train.X[rows] for site, rows in index.items() if len(rows)}
    labels = None
    if change.noise is not None:
        assert own.train.y is not None
        noisy = _noisy(own.train.y, change.noise, stream(seed, 0, "labels"))
        labels = {site: noisy[index[site]] for site in sites}
    options = JobOptions(k=change.k, seed=seed, assess=False, min_sites=1)
    states, _ = train_by_rounds(sites, {"epochs": EPOCHS, "rounds": rounds, **change.settings}, options, labels)
    return study_trials.TrialResult(evaluate(own, states, range(rounds + 1)))


def _noisy(y: IntArray, share: float, rng: np.random.Generator) -> IntArray:
    """Return the classes (n,) with a share of them replaced by classes drawn at random."""
    return np.where(rng.random(len(y)) < share, rng.integers(K, size=len(y)), y)


def _random_weights(cells: Sequence[study_trials.Cell]) -> Line:
    return _numbers({"change": "random weights", "split": "-"}, find_cell(cells, change=BASE, split=IID), 0)


def _line(cells: Sequence[study_trials.Cell], name: str, split: str, rounds: int) -> Line:
    cell, metric = find_cell(cells, change=name, split=split), f"accuracy_{rounds}"
    gap = value(cell, metric) - value(find_cell(cells, change=BASE, split=split), metric)
    about = {"change": name, "split": "-" if CHANGES[name].one_site else split}
    return _numbers(about, cell, rounds, "" if name == BASE else f"{gap:+.1f} to {BASE}")


def _numbers(about: Mapping[str, str], cell: study_trials.Cell | None, round_: int, reading: str = "") -> Line:
    shown = mean_only if cell is not None and cell.n == 1 else mean_std  # one seed has no deviation
    ours = f"{shown(cell, f'accuracy_{round_}', 1)} (NMI {shown(cell, f'nmi_{round_}', 2)})"
    return Line(about, NOTHING, ours, reading)


def _notes(cells: Sequence[study_trials.Cell], rounds: int) -> list[str]:
    def gain(name: str, split: str = IID) -> float:
        cell = find_cell(cells, change=name, split=split)
        return value(cell, f"accuracy_{rounds}") - value(cell, "accuracy_0")

    steps = [gain(name) for name in PANELS["centroid steps"]]
    return [
        (
            f"Over random weights (iid) training adds {gain(RANDOM):+.1f} points with random labels, {min(steps):+.1f} to {max(steps):+.1f} with the five "
            f"centroid steps, {gain(HALF):+.1f} with true classes half of which are replaced at random, {gain(TRUE):+.1f} with the "
            f"true classes. The centroid steps are {max(steps) - min(steps):.1f} points apart."
        ),
        (
            f"One site with all images: {gain(ONE):+.1f} points; with as many updates as each of the {SITES} sites makes, {gain(ONE_SLOW):+.1f}."
        ),
        f"{SKEWED}: {gain(BASE, SKEWED):+.1f} points with feca, {gain(TRUE, SKEWED):+.1f} with the true classes.",
    ]


def _picture(cells: Sequence[study_trials.Cell], rounds: int) -> "Figure":
    shown = [(title, key) for title in PANELS for key in ("accuracy", "nmi")]
    titles = [f"{title}: {'linear accuracy (%)' if key == 'accuracy' else 'NMI'}" for title, key in shown]
    figure, all_axes = figures.panels(titles, columns=2, size=(4.6, 2.6))
    for axes, (title, key) in zip(all_axes, shown, strict=True):
        for number, name in enumerate(PANELS[title]):
            cell = find_cell(cells, change=name, split=IID)
            means, spreads = ([f(cell, f"{key}_{r}") for r in range(rounds + 1)] for f in (value, spread))
            figures.line(axes, range(rounds + 1), means, spreads, label=name, number=number)
        axes.set_xlabel("round", fontsize=8)
        if key == "nmi":
            axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
