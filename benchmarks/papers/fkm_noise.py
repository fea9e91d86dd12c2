"""FKM, figure 3 (and 6): the grid with more and more noise, and what the rounds add."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers import figures
from benchmarks.papers.base import Line, Report, Study, find_cell, mean_only, mean_std, reading
from benchmarks.papers.claims import Side, compare, spread, value
from benchmarks.papers.fkm_grid import (
    BETAS,
    CENTRAL,
    CLOSE,
    FKM,
    GENERATED,
    KFED,
    METHODS,
    PUBLISHED,
    READING,
    ROUNDS,
    by_location,
    trials_of,
)
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISES = ("1", "1.1", "1.2", "1.3", "1.4", "1.5")
#: From here on noise counts as high.
HIGH = 1.4
SHOWN = (FKM, KFED, CENTRAL)


def figure3(study: Study) -> Report:
    """Compare the methods under more and more noise, and FKM round by round."""
    noises = ("1", "1.5") if study.quick else NOISES
    betas = BETAS[:1] if study.quick else BETAS
    kinds = [(PUBLISHED, "50")] if study.quick else [(PUBLISHED, "50"), (PUBLISHED, "200"), (GENERATED, "50")]
    groups = [
        {"data": data, "points": points, "beta": beta, "noise": noise}
        for data, points in kinds
        for beta in betas
        for noise in noises
    ]
    trials: list[study_trials.Trial] = []
    for group in groups:
        source = by_location(group["data"], group["beta"], int(group["points"]), group["noise"])
        trials += trials_of(group, source, study.seeds, {name: METHODS[name] for name in SHOWN})
    cells = study.cells(trials)
    return Report(
        "fkm-figure3",
        "FKM, Figures 3 and 6: more noise",
        [_line(cells, group) for group in groups],
        _picture(cells, kinds, betas, noises),
        _notes(cells, groups),
        "The grid with more noise, `points` per cluster, five sites by location. `ours`: the ARI of fkm, kfed-k16 and "
        f"central, then that of fkm after its start and after rounds 1 and {ROUNDS}. {READING}",
    )


def _own(cells: Sequence[study_trials.Cell], group: Mapping[str, str]) -> dict[str, study_trials.Cell | None]:
    return {name: find_cell(cells, **group, method=name) for name in SHOWN}


def _line(cells: Sequence[study_trials.Cell], group: Mapping[str, str]) -> Line:
    own = _own(cells, group)
    side: Side = "below" if group["beta"] == "0.1" and float(group["noise"]) >= HIGH else "near"
    paper = ("similar to" if side == "near" else "below") + " central, above kfed-k16"
    rounds = ", ".join(mean_only(own[FKM], f"ari_round_{number}", 3) for number in (0, 1, ROUNDS))
    ours = " / ".join(mean_std(cell, "ari", 3) for cell in own.values())
    central = compare(own[FKM], own[CENTRAL], "ari", side, CLOSE)
    words = [text.rpartition("; ")[2] for text in (central, compare(own[FKM], own[KFED], "ari", "above"))]
    word = next((word for word in words if word != "agrees"), "agrees")
    return Line(group, paper, f"{ours}; rounds {rounds}", reading(central.partition("; ")[0], word))


def _notes(cells: Sequence[study_trials.Cell], groups: Sequence[Mapping[str, str]]) -> list[str]:
    owns = [(group, _own(cells, group)) for group in groups]
    owns = [
        (group, own) for group, own in owns if all(cell is not None and "ari" in cell.mean for cell in own.values())
    ]
    if not owns:
        return []
    high = {
        local: [
            value(own[FKM], "ari") - value(own[CENTRAL], "ari")
            for group, own in owns
            if (group["beta"] == "0.1") == local and float(group["noise"]) >= HIGH
        ]
        for local in (True, False)
    }
    wider = sum(spread(own[FKM], "ari") > spread(own[CENTRAL], "ari") for _, own in owns)
    gains: dict[str, list[float]] = {f"below {HIGH}": [], f"of {HIGH} and more": []}
    for group, own in owns:
        kind = list(gains)[float(group["noise"]) >= HIGH]
        gains[kind].append(value(own[FKM], "ari") - value(own[FKM], "ari_round_0"))
    gained = ", ".join(f"{np.mean(values):+.3f} at noise {name}" for name, values in gains.items() if values)
    notes = [f"What ten rounds add to the start, on average over the settings: {gained}."]
    if all(high.values()) and np.mean(high[True]) > np.mean(high[False]) - CLOSE:
        notes.append(
            "The paper sees FKM fall behind central at beta = 0.1 and high noise. Here it is "
            f"{np.mean(high[True]):+.3f} on average there, and {np.mean(high[False]):+.3f} at the same noise with larger beta: "
            "it is the noise, not the locality."
        )
    notes.append(f"FKM varies more over the seeds than central in {wider} of {len(owns)} settings.")
    return notes


def _picture(
    cells: Sequence[study_trials.Cell], kinds: Sequence[tuple[str, str]], betas: Sequence[str], noises: Sequence[str]
) -> "Figure":
    shown = [(points, beta) for data, points in kinds if data == PUBLISHED for beta in betas]
    titles = [f"{points} points, beta {beta}" for points, beta in shown]
    titles += [f"by round: 50 points, beta {beta}" for beta in betas]
    figure, all_axes = figures.panels(titles, columns=len(betas), size=(3.6, 2.5))
    for axes, (points, beta) in zip(all_axes, shown, strict=False):
        for number, name in enumerate(SHOWN):
            own = [_published(cells, points, beta, noise, name) for noise in noises]
            mean, std = [value(cell, "ari") for cell in own], [spread(cell, "ari") for cell in own]
            figures.line(axes, [float(noise) for noise in noises], mean, std, label=name, number=number)
            axes.lines[-1].set_linestyle("--" if name == CENTRAL else "-")  # it would hide fkm
        axes.set_ylim(0.2, 1)
        axes.set_xlabel("noise", fontsize=8)
    for axes, beta in zip(all_axes[len(shown) :], betas, strict=True):
        for number, noise in enumerate(noise for noise in noises if noise in ("1", "1.2", "1.5")):
            cell = _published(cells, "50", beta, noise, FKM)
            y = [value(cell, f"ari_round_{round_}") for round_ in range(ROUNDS + 1)]
            figures.line(axes, range(ROUNDS + 1), y, label=f"noise {noise}", number=len(SHOWN) + number)
        axes.set_xlabel("round (0: the start)", fontsize=8)
        axes.set_ylim(0.55, 1)
        axes.legend(fontsize=7, frameon=False, ncols=3, loc="lower right")
    for axes in all_axes[:: len(betas)]:
        axes.set_ylabel("ARI", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure


def _published(
    cells: Sequence[study_trials.Cell], points: str, beta: str, noise: str, method: str
) -> study_trials.Cell | None:
    return find_cell(cells, data=PUBLISHED, points=points, beta=beta, noise=noise, method=method)
