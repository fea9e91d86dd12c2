"""Outcomes of clusters beside lifelines on the pooled rows, and what protection costs: the table of docs/outcomes.md.

    pip install lifelines && python -m benchmarks.outcomes

With --private-only it prints the rows with differential privacy.

Data: GBSG-2 (686 patients), rossi (432 convicts), lung (228 patients), as lifelines ships them. Three sites with random rows, k=3,
seeds 0 to 4. The clusters are those of each run; lifelines gets the rows of all sites with their labels in it, so that the
differences are of counting outcomes alone. It prints a table in Markdown: the largest and the mean absolute difference of survival
over clusters and times, the largest one of medians in parts of the last time, the log-rank statistic over that of lifelines, and the
bytes of the exchange from all sites.

Under differential privacy the algorithm is dp-lloyd with epsilon=4 and delta=1e-5 for the clustering, in bounds that are the range of
each column in the whole data set, and times are counted in ten intervals, by us and by lifelines, so that the differences are of the
noise alone. The log-rank statistic is then that of the noisy numbers, which a result does not have.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import flareclust
from flareclust.evaluation.outcomes import ClusterOutcomes
from flareclust.protocol import cluster_arrays as keys

#: Of each set: lifelines' loader, columns of the clustering, time, event, and the last time.
SETS: dict[str, tuple[str, list[str], str, str, float]] = {
    "GBSG-2": ("load_gbsg2", ["age", "tsize", "pnodes", "progrec", "estrec"], "time", "cens", 2600.0),
    "rossi": ("load_rossi", ["age", "prio", "fin"], "week", "arrest", 52.0),
    "lung": ("load_lung", ["age", "ph.ecog", "ph.karno", "pat.karno", "wt.loss"], "time", "status", 1000.0),
}

#: Settings of a run, by what they are called in the table.
PROTECTION: dict[str, dict[str, Any]] = {
    "none": {},
    "secure sums": {"secure_sums": True},
    **{f"policy, floor {n}": {"policy": {"min_count": n, "min_rows": n}} for n in (5, 10, 20)},
    "policy, floor 10, and secure sums": {"policy": {"min_count": 10, "min_rows": 10}, "secure_sums": True},
}

#: The same of differential privacy, with what is spent on outcomes.
PRIVATE: dict[str, dict[str, Any]] = {
    f"outcome_epsilon {spent}{', secure sums' if secure else ''}": {"outcome_epsilon": spent, "secure_sums": secure}
    for secure in (False, True)
    for spent in (0.5, 1.0, 2.0, 4.0)
}

#: Intervals of times under differential privacy.
INTERVALS = 10

SITES, K, SEEDS = 3, 3, range(5)


def write_sites(folder: Path, name: str, seed: int, every: float) -> dict[str, Any]:
    """Write a schema and a table for each site; return the tables by site."""
    from lifelines import datasets

    loader, columns, time, event, until = SETS[name]
    frame = getattr(datasets, loader)()[[*columns, time, event]].dropna().reset_index(drop=True)
    lines = [f"  {column}: {{type: number}}" for column in (*columns, time, event)]
    outcome = f"outcome: {{time: {time}, event: {event}, every: {every:g}, until: {until:g}}}"
    (folder / "schema.yaml").write_text("\n".join(["columns:", *lines, outcome, ""]))
    parts = np.array_split(np.random.default_rng(seed).permutation(len(frame)), SITES)
    tables = {f"site-{i}": frame.iloc[rows] for i, rows in enumerate(parts)}
    (folder / "data").mkdir()
    for site, table in tables.items():
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    return tables


def private_settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run under differential privacy, with bounds that are the range of each column."""
    from lifelines import datasets

    loader, columns, *_ = SETS[name]
    frame = getattr(datasets, loader)()[columns].dropna()
    bounds = {column: [float(frame[column].min()), float(frame[column].max())] for column in columns}
    terms = {"bounds": bounds, "epsilon": 100.0, "delta": 1e-5, "budget": 100.0}
    return {"epsilon": 4.0, "delta": 1e-5, "policy": {"differential_privacy": terms}, **settings}


def compared(name: str, seed: int, settings: dict[str, Any]) -> tuple[float, ...]:
    """Return the differences of one run from lifelines, and its bytes."""
    from lifelines import KaplanMeierFitter
    from lifelines.statistics import multivariate_logrank_test

    _, _, time, event, until = SETS[name]
    private = "outcome_epsilon" in settings
    every = until / INTERVALS if private else 1.0
    settings = private_settings(name, settings) if private else {"scale": "standard", **settings}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tables = write_sites(folder, name, seed, every)
        schema, data = str(folder / "schema.yaml"), str(folder / "data")
        algorithm = "dp-lloyd" if private else "lloyd"
        result = flareclust.run(algorithm, data, partition="none", schema=schema, k=K, seed=seed, **settings)
    labels = np.concatenate([result.site_labels[site] for site in tables])
    times = np.concatenate([table[time].to_numpy(dtype=float) for table in tables.values()])
    events = np.concatenate([table[event].to_numpy(dtype=float) for table in tables.values()])
    events, times = events * (times <= until), np.minimum(np.ceil(times / every) * every, until)
    curves, table = result.outcomes_by_cluster("curves"), result.outcomes_by_cluster()
    away, medians = list[float](), list[float]()
    for cluster in range(K):
        own = labels == cluster
        pooled = KaplanMeierFitter().fit(times[own], events[own])
        ours = curves[curves["cluster"] == cluster]
        if not len(ours):  # below the floor everywhere
            continue
        grid = np.unique(times[own])
        at = np.searchsorted(ours["time"].to_numpy(), grid, side="right") - 1
        survival = np.where(at < 0, 1.0, ours["survival"].to_numpy()[np.maximum(at, 0)])
        away += np.abs(survival - pooled.survival_function_at_times(grid).to_numpy()).tolist()
        both = np.minimum([table["median"][cluster], pooled.median_survival_time_], until)
        medians.append(abs(float(both[0] - both[1])) / until)
    test = multivariate_logrank_test(times, labels, events).test_statistic
    # What a result leaves out since noise or a policy changed the numbers: how far its test would be wrong is what the table shows.
    marks = (keys.OUTCOME_NOISE, keys.OUTCOME_ADJUSTED)
    counted = {key: value for key, value in result.arrays.items() if key not in marks}
    ratio = ClusterOutcomes(counted).tests()[0].statistic / test
    sent = sum(int(str(one["bytes_up"])) for one in result.outcome.rounds if one["step"] == "outcome_counts")
    return max(away), float(np.mean(away)), max(medians), ratio, float(sent)


def main() -> None:
    parser = argparse.ArgumentParser(description="Outcomes of clusters beside lifelines.")
    parser.add_argument("--private-only", action="store_true", help="differential privacy only")
    asked = PRIVATE if parser.parse_args().private_only else PROTECTION | PRIVATE
    print("| data | protection | largest difference of survival | mean | of medians | log-rank ratio | bytes up |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in SETS:
        for words, settings in asked.items():
            found = np.array([compared(name, seed, settings) for seed in SEEDS])
            most, mean, median = found[:, 0].max(), found[:, 1].mean(), found[:, 2].max()
            ratio = f"{found[:, 3].min():.2f} to {found[:, 3].max():.2f}"
            print(
                f"| {name} | {words} | {most:.2g} | {mean:.2g} | {median:.2g} | {ratio} | {found[:, 4].mean():,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
