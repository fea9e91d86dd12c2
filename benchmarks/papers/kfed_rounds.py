"""k-FED, figure 3: one shot against the rounds of distributed k-means."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.papers import figures
from benchmarks.papers.base import NOTHING, Line, Report, Study, find_cell, mean_std, reading
from benchmarks.papers.claims import spread, value
from benchmarks.papers.kfed_partitions import (
    CANDIDATES,
    IID,
    Setting,
    about,
    clustered,
    one_shot,
    one_shot_cell,
    samples,
)
from benchmarks.papers.measures import history, inertia, solve
from flareclust._foundation.seeding import stream
from flareclust.experiment.sweeps import trials as study_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS = 10
LLOYD, RANDOM = "lloyd", "lloyd-random"
#: Costs within this share of each other count as similar.
SIMILAR = 0.05


def figure3(study: Study) -> Report:
    """Compare one round of k-FED with rounds of distributed k-means, by cost and by bytes."""
    settings = [clustered(study, name, data, CANDIDATES[0]) for name, data in samples(study).items()]
    trials = []
    for setting in settings:
        for split, k_local in _splits(setting):
            for seed in range(study.seeds):
                trials.append(one_shot(setting, split, k_local, seed))
                trials += [_iterative(setting, split, method, seed) for method in (LLOYD, RANDOM)]
    cells = study.cells(trials)
    return Report(
        "kfed-figure3",
        "k-FED, Figure 3: one shot against distributed k-means",
        [line for setting in settings for line in _round_lines(cells, setting)],
        _round_picture(cells, settings),
        _notes(cells, settings),
        about(settings[0])
        + f"k = {CANDIDATES[0]} as in Figure 2. The cost is the inertia at the centroids, over phi*. `kfed`: after one round. `{RANDOM}`: distributed k-means "
        f"from k random rows, after rounds 1, 5 and {ROUNDS}, as naive as the paper's may be; `{LLOYD}`: from all devices' "
        f"seeds, which is a round more. In random partitions k-FED looks for k clusters on each device. Similar: at most "
        f"{100 * SIMILAR:.0f} % above the last round.",
    )


def _splits(setting: Setting) -> list[tuple[str, int]]:
    return [*((f"clusters:{k_local}", k_local) for k_local in setting.locals), (IID, setting.k)]


def _iterative(setting: Setting, split: str, method: str, seed: int) -> study_trials.Trial:
    def measure() -> study_trials.TrialResult:
        federation = setting.federation(split, seed)
        params: dict[str, Any] = {"rounds": ROUNDS, "tol": 0.0}
        X, states, sent = federation.pooled, [], [0.0]
        if method == RANDOM:
            rows = stream(seed, 0, "start").choice(len(X), size=setting.k, replace=False)
            states, params = [X[rows]], {**params, "start": X[rows].tolist()}
        outcome = solve("lloyd", params, federation, setting.k, seed, assess=False)
        states += history(outcome)
        for record in outcome.rounds:
            sent.append(sent[-1] + record["bytes_up"] / 1e6)  # type: ignore[operator]
        sent = sent if method == RANDOM else sent[1:]
        final = {}
        for round_ in range(ROUNDS + 1):  # it may have settled before the last
            last = min(round_, len(states) - 1)
            final[f"inertia_{round_}"] = inertia(X, states[last]) / setting.cost
            final[f"megabytes_{round_}"] = sent[last]
        return study_trials.TrialResult(final, {"bytes_up": float(outcome.bytes_up), "rounds": float(outcome.n_rounds)})

    cell = {"data": setting.name, "k": str(setting.k), "split": split, "method": method}
    return study_trials.Trial(
        cell, seed, setting.params(algorithm="lloyd", start=method, partition=split, rounds=ROUNDS), measure
    )


def _round_lines(cells: Sequence[study_trials.Cell], setting: Setting) -> list[Line]:
    lines = []
    for split, k_local in _splits(setting):
        one = one_shot_cell(cells, setting, split, k_local)
        group = {"data": setting.name, "k": str(setting.k), "split": split}
        for method in (RANDOM, LLOYD):
            many = find_cell(cells, **group, method=method)
            ours = f"kfed {mean_std(one, 'inertia', 3)}; {method} " + ", ".join(
                f"{value(many, f'inertia_{round_}'):.3f}" for round_ in (1, 5, ROUNDS)
            )
            last = value(many, f"inertia_{ROUNDS}")
            word = "agrees" if value(one, "inertia") <= (1 + SIMILAR) * last else "higher"
            paper = "similar cost in one round" if method == RANDOM else NOTHING
            text = _text(one, many, _rounds_to(many, value(one, "inertia")))
            lines.append(
                Line(
                    {**group, "against": method},
                    paper,
                    ours,
                    reading(text, word if method == RANDOM else ""),
                )
            )
    return lines


def _notes(cells: Sequence[study_trials.Cell], settings: Sequence[Setting]) -> list[str]:
    far = []
    for setting in settings:
        for split, k_local in _splits(setting):
            many = find_cell(cells, data=setting.name, k=str(setting.k), split=split, method=RANDOM)
            one = value(one_shot_cell(cells, setting, split, k_local), "inertia")
            if one > (1 + SIMILAR) * value(many, f"inertia_{ROUNDS}"):
                far.append(f"{setting.name}, {split} (+{100 * (one / value(many, f'inertia_{ROUNDS}') - 1):.0f} %)")
    if not far:
        return []
    return [
        (
            f"k-FED's cost is more than {100 * SIMILAR:.0f} % above that of {ROUNDS} rounds of distributed k-means where devices "
            f"have many clusters: {'; '.join(far)}. Started from all devices' seeds, distributed k-means is at k-FED's cost or "
            "below it almost at once: what costs rounds is a naive start."
        )
    ]


def _rounds_to(cell: study_trials.Cell | None, cost: float) -> int | None:
    return next((round_ for round_ in range(ROUNDS + 1) if value(cell, f"inertia_{round_}") <= cost), None)


def _text(one: study_trials.Cell | None, many: study_trials.Cell | None, needed: int | None) -> str:
    if needed is None:
        return f"kfed's cost not reached in {ROUNDS} rounds"
    share = value(many, f"megabytes_{needed}") / value(one, "megabytes")
    return f"kfed's cost reached after round {needed}, with {share:.1f} times its bytes"


def _round_picture(cells: Sequence[study_trials.Cell], settings: Sequence[Setting]) -> "Figure":
    shown = [(setting, split, k_local) for setting in settings for split, k_local in _splits(setting)]
    titles = [
        f"{setting.name}, " + (f"random (k' = {k_local})" if split == IID else f"at most {k_local} clusters")
        for setting, split, k_local in shown
    ]
    figure, all_axes = figures.panels(titles, columns=len(_splits(settings[0])), size=(3.0, 2.5))
    for axes, (setting, split, k_local) in zip(all_axes, shown, strict=True):
        one = one_shot_cell(cells, setting, split, k_local)
        for number, method in enumerate((RANDOM, LLOYD)):
            many = find_cell(cells, data=setting.name, k=str(setting.k), split=split, method=method)
            rounds = range(
                method == RANDOM, ROUNDS + 1
            )  # a random start has cost no bytes: nothing to draw on this axis
            x = [value(many, f"megabytes_{round_}") for round_ in rounds]
            y = [value(many, f"inertia_{round_}") for round_ in rounds]
            figures.line(
                axes, x, y, [spread(many, f"inertia_{round_}") for round_ in rounds], label=method, number=number
            )
        point = [value(one, "megabytes")], [value(one, "inertia")]
        axes.scatter(*point, marker="X", s=60, color=figures.PAPER_COLOUR, zorder=5, label="kfed, one round")
        axes.set_xscale("log")
        axes.set_xlim(0.02, 4)
        axes.set_xticks((0.03, 0.1, 0.3, 1, 3), ("0.03", "0.1", "0.3", "1", "3"))
        axes.minorticks_off()
        axes.set_xlabel("megabytes sent by all devices", fontsize=8)
    for axes in all_axes[:: len(_splits(settings[0]))]:
        axes.set_ylabel("cost / cost of the oracle", fontsize=8)
    figures.legend(figure, all_axes[0])
    return figure
