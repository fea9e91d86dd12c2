"""FeCA, Table 3: DeepFeCA against the same loop with other centroid steps, by linear evaluation."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, WORKERS, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import spread, standard_error, value
from benchmarks.papers.samples import at_most
from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.deepfeca import DeepFeCAAggregator
from flareclust.core.lloyd import assign
from flareclust.data import published
from flareclust.data.datasets import Dataset, load
from flareclust.data.npy_files import npz_arrays
from flareclust.data.partition import partition
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation.metrics import nmi
from flareclust.experiment.trials import Cell, Trial, TrialResult
from flareclust.protocol.registry import Algorithm, get

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, SITES, SEEDS = 10, 10, 3
SPLITS = ("iid", "dirichlet:0.3", "dirichlet:0.1")
METHODS = ("feca", "mavg", "ffcm", "kfed", "pooled")
RANDOM, CENTRAL = "random weights", "centralised"
#: Rounds after which features are evaluated; the last is the number of rounds.
EVALUATED = (0, 5, 10, 15)
SETTINGS: Mapping[str, Any] = {"epochs": 2}
#: Images of MNIST that the sites have, and test images.
IMAGES, TEST = 6_000, 2_000

#: Table 3 of the paper, CIFAR-10 with ResNet-18 and 150 rounds: linear accuracy in per cent by split.
PAPER = {
    "mavg": (53.6, 48.2, 45.1),
    "ffcm": (47.7, 50.1, 49.1),
    "kfed": (46.8, 50.0, 47.1),
    "feca": (55.3, 63.7, 59.9),
}


@dataclass(frozen=True)
class Images:
    """Images of a data set: `train` (n, d) is spread over sites, `test` is for evaluation only."""

    train: Dataset
    test: FloatArray
    test_y: IntArray


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


@cache
def images(name: str) -> Images:
    """Return a data set's images."""
    if name == "digits":
        data = load("digits")
        order = np.random.default_rng(0).permutation(len(data.X))
        train, test = order[:1257], order[1257:]
        assert data.y is not None
        return Images(replace(data, X=data.X[train], y=data.y[train]), data.X[test], data.y[test])
    file = published.data_folder() / "mnist" / "mnist.npz"
    if not file.is_file():
        raise UserError("mnist is not there; fetch it with: flareclust data get mnist")
    arrays = npz_arrays(file, ("X_train", "y_train", "X_test", "y_test"))
    X, y = arrays["X_train"].reshape(-1, 784).astype(np.float64), arrays["y_train"].astype(np.int64)
    rest = arrays["X_test"][:TEST].reshape(-1, 784).astype(np.float64), arrays["y_test"][:TEST].astype(np.int64)
    return Images(at_most(Dataset("mnist", X, y), IMAGES), *rest)


def _trial(processes: Executor, name: str, split: str, method: str, seed: int) -> Trial:
    cell = {"data": name, "split": split, "method": method}
    params = {**cell, **SETTINGS, "k": K, "rounds": EVALUATED[-1], "images": IMAGES}
    return Trial(cell, seed, params, lambda: processes.submit(measure, name, split, method, seed).result())


def measure(name: str, split: str, method: str, seed: int) -> TrialResult:
    """Return linear accuracy and NMI at the rounds of `EVALUATED` of one training."""
    own = images(name)
    index = {"all": np.arange(len(own.train.X))}
    if method != CENTRAL:
        index = partition(split, own.train.X, own.train.y, SITES, stream(seed, 0, "partition"))
    sites = {site: own.train.X[rows] for site, rows in index.items() if len(rows)}
    states: list[Message] = []
    params = {**SETTINGS, "rounds": EVALUATED[-1], "centroids": "pooled" if method == CENTRAL else method}
    outcome = run_inprocess(_watched(states), params, sites, JobOptions(k=K, seed=seed, assess=False, min_sites=1))
    states.append(outcome.arrays)
    found: dict[str, float] = {}
    for round_ in EVALUATED:
        found |= {f"{key}_{round_}": number for key, number in _evaluated(own, states[round_]).items()}
    return TrialResult(found, {"bytes_up": float(outcome.bytes_up), "rounds": float(outcome.n_rounds)})


def _watched(states: list[Message]) -> Algorithm:
    """Return DeepFeCA with a server that keeps what every training began from: network and centroids."""

    class Watching(DeepFeCAAggregator):
        def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
            after = super().merge(round_, replies, rng)
            if "prototypes" in after.task:
                states.append({**after.task, "centroids": after.task["prototypes"]})
            return after

    class Watched(Algorithm):
        def aggregator_class(self) -> type[DeepFeCAAggregator]:
            return Watching

    line = get("deepfeca")
    return Watched(line.name, line.title, line.executor, line.aggregator, line.promises)


def _evaluated(own: Images, state: Message) -> dict[str, float]:
    """Return linear accuracy, in per cent, and NMI of a network and centroids."""
    import torch
    from sklearn.linear_model import LogisticRegression

    from flareclust.deep.images import as_images
    from flareclust.deep.networks import build
    from flareclust.deep.training import embed
    from flareclust.deep.weights import load_weights

    network = build("auto", state["image"], 0)
    load_weights(network, state["weights"])
    cpu = torch.device("cpu")
    train, test = (as_images(rows, state["image"]) for rows in (own.train.X, own.test))
    features, others = (embed(network.backbone, rows, cpu).astype(np.float32) for rows in (train, test))
    center, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    model = LogisticRegression(max_iter=60).fit((features - center) / scale, own.train.y)
    accuracy = model.score((others - center) / scale, own.test_y)
    assert own.train.y is not None
    labels = assign(embed(network, train, cpu), state["centroids"])[0]
    return {"accuracy": 100 * float(accuracy), "nmi": nmi(own.train.y, labels)}


def _lines(cells: Sequence[Cell], name: str) -> list[Line]:
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


def _against(cells: Sequence[Cell], name: str, split: str, method: str) -> str:
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


def _notes(cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
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


def _picture(cells: Sequence[Cell], names: Sequence[str]) -> "Figure":
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
