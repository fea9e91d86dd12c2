"""The first look: three algorithms as NVFlare simulator jobs on real data, k-means on the pooled rows beside them.

`make demo` runs it, and so does `python -m flareclust.flows.demo` wherever flareclust is installed.
"""

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flareclust.api import run_experiment
from flareclust.experiment.config import make_experiment
from flareclust.experiment.reports import terminal
from flareclust.experiment.results.result import Result
from flareclust.tracking import store

_FOLDER = Path("flareclust-runs") / "demo"
DATA, PARTITION, CLIENTS = "digits", "dirichlet:0.3", 10
_RUNS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("central", "inprocess", {}),
    ("portfolio", "simulator", {"polish": 3}),
    ("feca", "simulator", {}),
    ("kfed", "simulator", {}),
)


def _main() -> None:
    """Run them and print a table."""
    results, started = {}, time.time()
    for algorithm, engine, params in _RUNS:
        experiment = make_experiment(
            algorithm=algorithm, data=DATA, partition=PARTITION, n_sites=CLIENTS, engine=engine, params=params
        )
        with terminal.progress(experiment) as on_round:
            results[algorithm] = run_experiment(experiment, track=True, out=_FOLDER / algorithm, on_round=on_round)
    console = Console()
    console.print(_table(results))
    console.print("central pools the rows, which a federation may not; inertia ratio: to central", highlight=False)
    for result in results.values():
        for warning in result.warnings:
            console.print(f"note, {result.algorithm}: {warning}", highlight=False, soft_wrap=True)
    console.print(f"pictures: {_FOLDER}/*/picture.png", highlight=False, soft_wrap=True)
    console.print(f"MLflow store: {store.resolve_uri()}; see it with: flareclust ui", highlight=False, soft_wrap=True)
    console.print(f"{time.time() - started:.0f} s in all", highlight=False)


def _table(results: dict[str, Result]) -> Table:
    best, rows = results["central"].metrics["inertia"] or 1.0, []
    for name, result in results.items():
        metrics = {key: value or 0.0 for key, value in result.metrics.items()}
        quality = (metrics["ari"], metrics["nmi"], metrics["inertia"] / best)
        found = f"{result.centroids_found} of {result.k}"
        cost = f"{result.bytes['up'] // result.n_sites:,}", f"{result.seconds['total']:.1f}"
        rows.append((name, *(f"{value:.3f}" for value in quality), found, *cost))
    heads = terminal.numbers("ARI", "NMI", "inertia ratio", "centroids", "bytes/site", "seconds")
    title = f"{DATA}, {PARTITION} over {CLIENTS} sites, k={results['central'].k}, seed 0"
    return terminal.table_of("algorithm", *heads, rows=rows, title=title)


if __name__ == "__main__":
    _main()
