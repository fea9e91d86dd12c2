"""k-FED, figure 2: structured against random partitions; and the clustered data sets that figure 3 uses, too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import compare, spread, value
from benchmarks.papers.generators import Federation, deal
from benchmarks.papers.kfed_oracle import C0, chosen, oracle, rule_cell, rule_trials, sample
from benchmarks.papers.measures import clustering_cost, inertia, solve
from flareclust._foundation.seeding import stream
from flareclust.data.datasets import Dataset
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = ("femnist", "mnist")
DEVICES, QUICK_DEVICES = 50, 10
#: What the rule chooses from, and a further k: the rule does not get beyond its smallest candidate.
CANDIDATES, LARGE = (16, 25, 36, 49, 64), 64
IID = "iid"


@dataclass(frozen=True, eq=False)
class Setting:
    """A clustered data set.

    Attributes:
        name: of the data set.
        data: rows, with their oracle cluster for label.
        k: number of clusters.
        cost: phi*, the k-means cost of the oracle clustering.
        devices: how many the rows are assigned to.
    """

    name: str
    data: Dataset
    k: int
    cost: float
    devices: int

    @property
    def locals(self) -> tuple[int, ...]:
        """Return the numbers of clusters per device."""
        return tuple(k_local for k_local in (2, 4, 8, 16) if k_local <= self.k // 2)

    def federation(self, split: str, seed: int) -> Federation:
        """Deal the rows: at random, or so that each device has at most k' clusters."""
        return deal(self.data, split, self.devices, stream(seed, 0, "partition"))

    def params(self, **more: object) -> dict[str, Any]:
        """Return what a trial's result depends on beside `more`."""
        known = {"data": f"{self.name}:pca50", "rows": len(self.data.X), "k": self.k, "devices": self.devices}
        return {**known, **more}


def samples(study: Study) -> dict[str, Dataset]:
    """Return the rows by data set."""
    return {name: sample(name, study.quick) for name in (DATA[1:] if study.quick else DATA)}


def clustered(study: Study, name: str, data: Dataset, k: int) -> Setting:
    """Return a data set with its oracle clustering."""
    labelled, cost = oracle(data, k)
    return Setting(name, labelled, k, cost, QUICK_DEVICES if study.quick else DEVICES)


def about(setting: Setting) -> str:
    """Return what is said of the data of both figures."""
    return (
        "FEMNIST is the subset that Garst and Reinders published, MNIST stands in for Shakespeare, whose split is not at "
        f"hand; {len(setting.data.X)} rows of each, 50 principal components, {setting.devices} devices (the paper gives no "
        "number). The oracle clustering is k-means on all rows. "
    )


def figure2(study: Study) -> Report:
    """Compare k-FED's cost on structured and on random partitions."""
    data = samples(study)
    candidates = CANDIDATES[:2] if study.quick else CANDIDATES
    settings = [
        clustered(study, name, rows, k)
        for name, rows in data.items()
        for k in (CANDIDATES[:1] if study.quick else (CANDIDATES[0], LARGE))
    ]
    trials = [trial for name, rows in data.items() for trial in rule_trials(name, rows, candidates, 1)]
    for setting in settings:
        cases = [(f"clusters:{k_local}", k_local) for k_local in setting.locals]
        cases += [(IID, k_local) for k_local in (*setting.locals, setting.k)]
        trials += [one_shot(setting, split, k_local, seed) for split, k_local in cases for seed in range(study.seeds)]
    cells = study.cells(trials)
    return Report(
        "kfed-figure2",
        "k-FED, Figure 2: structured against random partitions",
        [line for setting in settings for k_local in setting.locals for line in _ratio_lines(cells, setting, k_local)],
        _ratio_picture(cells, settings),
        _ratio_notes(cells, settings),
        about(settings[0])
        + _rule(cells, list(data), candidates)
        + "`ours` is (phi(k') - phi*) / (phi_iid - phi*) with phi the k-means cost of the induced clustering (eq. 1): k-FED "
        "on devices with at most k' clusters against k-FED on random devices. The paper's phi(k) reads as random devices "
        "that look for all k clusters; `random, k'` has them look for k', as the structured ones do.",
    )


def one_shot(setting: Setting, split: str, k_local: int, seed: int) -> study_trials.Trial:
    """Return the trial that runs k-FED with k' on a split."""

    def measure() -> study_trials.TrialResult:
        federation = setting.federation(split, seed)
        outcome = solve("kfed", {"k_local": k_local}, federation, setting.k, seed)
        labels = np.concatenate([outcome.labels[site] for site in federation.sites])
        final = {
            "cost": clustering_cost(federation.pooled, labels) / setting.cost,
            "inertia": inertia(federation.pooled, outcome.centroids) / setting.cost,
            "megabytes": outcome.rounds[0]["bytes_up"] / 1e6,  # type: ignore[operator]
        }
        return study_trials.TrialResult(final, {"bytes_up": float(outcome.bytes_up)})

    cell = {"data": setting.name, "k": str(setting.k), "split": split, "method": f"kfed-k{k_local}"}
    return study_trials.Trial(cell, seed, setting.params(algorithm="kfed", k_local=k_local, partition=split), measure)


def one_shot_cell(
    cells: Sequence[study_trials.Cell], setting: Setting, split: str, k_local: int
) -> study_trials.Cell | None:
    """Return the cell of such trials."""
    return find_cell(cells, data=setting.name, k=str(setting.k), split=split, method=f"kfed-k{k_local}")


def _rule(cells: Sequence[study_trials.Cell], names: Sequence[str], candidates: Sequence[int]) -> str:
    """Say which k the rule of Appendix B.2 picks, and which are taken."""
    taken = f"k = {CANDIDATES[0]} is taken, the smallest candidate, and in full runs k = {LARGE} beside it. "
    maximum = max(value(rule_cell(cells, name, k), "q100") for name in names for k in candidates)
    if maximum <= C0:
        return f"Appendix B.2's rule does not choose k: no pair of clusters has c_rs above {C0}, the largest is {maximum:.2f}. {taken}"
    picked = ", ".join(f"k = {chosen(cells, name, candidates)} on {name}" for name in names)
    return f"Appendix B.2's rule picks {picked}. {taken}"


def _ratio(cells: Sequence[study_trials.Cell], setting: Setting, k_local: int, random: int) -> float:
    structured = value(one_shot_cell(cells, setting, f"clusters:{k_local}", k_local), "cost") - 1
    return structured / (value(one_shot_cell(cells, setting, IID, random), "cost") - 1)


def _ratio_lines(cells: Sequence[study_trials.Cell], setting: Setting, k_local: int) -> list[Line]:
    lines = []
    structured = one_shot_cell(cells, setting, f"clusters:{k_local}", k_local)
    for against, random in (("random, k", setting.k), ("random, k'", k_local)):
        ratio, other = _ratio(cells, setting, k_local, random), one_shot_cell(cells, setting, IID, random)
        group = {"data": setting.name, "k": str(setting.k), "k'": str(k_local), "against": against}
        costs = f"phi / phi*: {mean_std(structured, 'cost', 3)} and {mean_std(other, 'cost', 3)}"
        word = compare(structured, other, "cost", "below").rpartition("; ")[2]
        lines.append(Line(group, "below 1", NOTHING if np.isnan(ratio) else f"{ratio:.2f}", reading(costs, word)))
    return lines


def _ratio_notes(cells: Sequence[study_trials.Cell], settings: Sequence[Setting]) -> list[str]:
    worse = [
        f"{setting.name}, k = {setting.k}, k' = {k_local} ({_ratio(cells, setting, k_local, setting.k):.2f})"
        for setting in settings
        for k_local in setting.locals
        if _ratio(cells, setting, k_local, setting.k) >= 1
    ]
    if not worse:
        return []
    return [
        (
            "Structured partitions are not always better than random ones: not where devices have many clusters and random "
            f"devices look for all k: {'; '.join(worse)}. At the same k' they always are, but there random devices look for "
            "fewer clusters than they have."
        )
    ]


def _ratio_picture(cells: Sequence[study_trials.Cell], settings: Sequence[Setting]) -> "Figure":
    figure, all_axes = figures.panels([f"{one.name}, k = {one.k}" for one in settings], size=(4.2, 2.6))
    for axes, setting in zip(all_axes, settings, strict=True):
        x = setting.locals
        cases: Mapping[str, Callable[[int], tuple[str, int]]] = {
            "at most k' clusters": lambda k_local: (f"clusters:{k_local}", k_local),
            "random, looks for k'": lambda k_local: (IID, k_local),
            "random, looks for k": lambda k_local, k=setting.k: (IID, k),  # type: ignore[misc]
        }
        for number, (label, case) in enumerate(cases.items()):
            own = [one_shot_cell(cells, setting, *case(k_local)) for k_local in x]
            spreads = [spread(cell, "cost") for cell in own]
            figures.line(axes, x, [value(cell, "cost") for cell in own], spreads, label=label, number=number)
        axes.set_xscale("log")
        axes.set_xticks(x, [str(k_local) for k_local in x])
        axes.minorticks_off()
        axes.set_xlabel("k'", fontsize=8)
        axes.set_ylabel("cost / cost of the oracle", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure
