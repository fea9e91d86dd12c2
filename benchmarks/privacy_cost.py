"""What differential privacy costs: l2, inertia and ARI against epsilon, beside the same without noise.

    FLARECLUST_DATA=<folder> python -m benchmarks.privacy_cost [SEEDS]

Ten sites, iid, in-process; every site grants what the job asks for, at delta = 1e-5. Writes benchmarks/records/privacy_cost.json (means
and standard deviations over the seeds, 10 by default), the table in docs/differential-privacy.md and
docs/images/privacy_cost.png. Noise follows no seed, so figures
differ from run to run by about their standard deviation divided by the root of the number of seeds.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

import flareclust
from flareclust.data.datasets import load

DOCS = Path(__file__).resolve().parent.parent / "docs"
#: 1000 stands for no privacy to speak of: what is left is what bounds, grid and few rounds cost.
EPSILONS = (0.1, 0.3, 0.5, 1.0, 3.0, 10.0, 1000.0)
DELTA = 1e-5
#: Clusters, and bounds that the sites state: of S1's drawing area, of the digits' 17 grey values. Nothing is read from rows.
SETS: dict[str, tuple[int, tuple[float, float]]] = {"s1": (15, (0.0, 1e6)), "digits": (10, (0.0, 16.0))}
#: By name in the tables: the algorithm, its settings, and the one that does the same without noise.
PRIVATE: dict[str, tuple[str, dict[str, Any], str]] = {
    "dp-lloyd": ("dp-lloyd", {}, "lloyd"),
    "dp-lloyd, secure sums": ("dp-lloyd", {"secure_sums": True}, "lloyd"),
    "dp-oneshot": ("dp-oneshot", {}, "pooled"),
}
PLAIN = ("lloyd", "pooled")


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    found = {data: measured(data, seeds) for data in SETS}
    settings = {
        "seeds": seeds,
        "sites": 10,
        "delta": DELTA,
        "bounds": {data: bounds for data, (_, bounds) in SETS.items()},
    }
    (DOCS.parent / "benchmarks" / "records" / "privacy_cost.json").write_text(
        json.dumps(settings | {"figures": found}, indent=1) + "\n"
    )
    draw(found)
    page = DOCS / "differential-privacy.md"
    page.write_text(with_table(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    for data, lines in found.items():
        for name, line in lines.items():
            print(
                data,
                name,
                {key: {name: round(pair[0], 3) for name, pair in value.items()} for key, value in line.items()},
            )


def measured(data: str, seeds: int) -> dict[str, dict[str, Any]]:
    """Return by algorithm and epsilon ("" for none) the mean and the standard deviation of every measure."""
    central = inertia(data, flareclust.run("central", data=data, k=SETS[data][0]).centroids)
    lines: dict[str, dict[str, Any]] = {}
    for name in PRIVATE:
        lines[name] = {
            f"{e:g}": summary([one(data, name, seed, central, e) for seed in range(seeds)]) for e in EPSILONS
        }
        print(data, name, lines[name], flush=True)
    for name in PLAIN:
        lines[name] = {"": summary([one(data, name, seed, central) for seed in range(seeds)])}
    return lines


def one(data: str, name: str, seed: int, central: float, epsilon: float | None = None) -> dict[str, float]:
    """Return the measures of one run; inertia is that of the pooled rows, not the noisy one that the sites send."""
    k, bounds = SETS[data]
    private: dict[str, Any] = {}
    if epsilon is not None:
        name, settings, _ = PRIVATE[name]
        granted = {"bounds": list(bounds), "epsilon": epsilon, "delta": DELTA, "budget": epsilon}
        private = {**settings, "epsilon": epsilon, "delta": DELTA, "policy": {"differential_privacy": granted}}
    result = flareclust.run(name, data=data, k=k, partition="iid", n_sites=10, seed=seed, **private)
    known = {key: float(result.metrics[key]) for key in ("l2", "ari") if result.metrics.get(key) is not None}
    return known | {"inertia": inertia(data, result.centroids) / central}


def inertia(data: str, centroids: Any) -> float:
    """Return the sum of squared distances of all rows to their nearest centroid."""
    X = load(data).X
    return float(sum(((row - centroids) ** 2).sum(axis=1).min() for row in X))


def summary(runs: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return [mean, standard deviation] of each measure."""
    return {
        key: [float(f"{np.mean(values):.5g}"), float(f"{np.std(values):.3g}")]
        for key in runs[0]
        for values in [[run[key] for run in runs]]
    }


def with_table(page: str, found: dict[str, dict[str, Any]]) -> str:
    """Return the text of the page with its table written anew."""
    columns = [(data, name) for data in found for name in PRIVATE]
    titles = [f"{data}, `{PRIVATE[name][0]}`{name.removeprefix(PRIVATE[name][0])}" for data, name in columns]
    lines = ["| epsilon | " + " | ".join(titles) + " |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for epsilon in EPSILONS:
        cells = [cell(found[data][name][f"{epsilon:g}"]) for data, name in columns]
        lines.append(f"| {epsilon:g} | " + " | ".join(cells) + " |")
    plain = [cell(found[data][PRIVATE[name][2]][""]) for data, name in columns]
    lines.append("| no noise: `lloyd`, `pooled` | " + " | ".join(plain) + " |")
    before, rest = page.split("<!-- cost -->")
    after = rest.split("<!-- /cost -->")[1]
    return f"{before}<!-- cost -->\n" + "\n".join(lines) + f"\n<!-- /cost -->{after}"


def cell(measures: dict[str, list[float]]) -> str:
    """Return l2 / 10,000 where it is known, and inertia, each with its standard deviation."""
    parts = [
        f"l2 {mean / 1e4:.2f} ± {spread / 1e4:.2f}"
        for mean, spread in [measures[name] for name in ("l2",) if name in measures]
    ]
    mean, spread = measures["inertia"]
    return ", ".join([*parts, f"inertia {mean:.2f} ± {spread:.2f}"])


def draw(found: dict[str, dict[str, Any]]) -> None:
    """Draw l2 of S1 and the inertia of both against epsilon."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), constrained_layout=True)
    panels = (
        ("s1", "l2", 1e4, "S1: l2 / 10,000"),
        ("s1", "inertia", 1, "S1: inertia / central"),
        ("digits", "inertia", 1, "digits: inertia / central"),
    )
    colors = {"dp-lloyd": "#1b6ca8", "dp-oneshot": "#d1495b", "lloyd": "#1b6ca8", "pooled": "#d1495b"}
    colors["dp-lloyd, secure sums"] = "#2a9d5c"
    for axis, (data, measure, unit, title) in zip(axes, panels, strict=True):
        for name, line in found[data].items():
            if "" in line:
                level = line[""][measure][0] / unit
                axis.axhline(level, color=colors[name], linestyle=":", linewidth=1.2, label=f"{name}, no noise")
                continue
            mean, spread = (np.array([value[measure][i] for value in line.values()]) / unit for i in (0, 1))
            place = np.arange(len(mean))
            axis.plot(place, mean, "o-", color=colors[name], label=name, markersize=4)
            axis.fill_between(place, np.maximum(mean - spread, mean / 4), mean + spread, color=colors[name], alpha=0.15)
        axis.set_xticks(np.arange(len(EPSILONS)), [f"{e:g}" for e in EPSILONS])
        axis.set(yscale="log", title=title, xlabel="epsilon per job")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
        axis.set_yticks([ticks for ticks in (1, 2, 5, 10, 20, 50, 100) if within(ticks, axis.get_ylim())])
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(DOCS / "images" / "privacy_cost.png", dpi=120, metadata={"Software": None})


def within(value: float, limits: tuple[float, float]) -> bool:
    """Return whether a value lies between two limits."""
    return limits[0] <= value <= limits[1]


if __name__ == "__main__":
    main()
