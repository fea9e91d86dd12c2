"""How much faster a run from the last centroids is than a fresh one, after rows were withdrawn, and how far its result is from that.

    python -m benchmarks.restart [--seeds 10] [--record]

`lloyd` over ten sites at random (iid), until nothing moves. Then rows are withdrawn: one, a hundredth and a tenth of them, at random
over the sites, or all of one site. The others are clustered again, from the centroids of before (`start_from`) and from new seeds.
Ratios are medians over the seeds. `--record` writes benchmarks/records/restart.json and the table in docs/withdrawal.md.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import flareclust
from benchmarks.speed.page import measured_on
from flareclust._foundation.typing import FloatArray
from flareclust.data.datasets import load

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "benchmarks" / "records" / "restart.json", ROOT / "docs" / "withdrawal.md"

#: Data sets, with the settings of their runs.
DATA: Mapping[str, dict[str, Any]] = {
    "digits": {"k": 10},
    "breast_cancer": {"k": 4, "scale": "standard"},
    "har": {"k": 6},
}

SITES = 10

#: What is withdrawn: a name, and the share of the rows; None for one row, 0 for one site.
WITHDRAWN: Mapping[str, float | None] = {
    "one row": None,
    "1 % of the rows": 0.01,
    "10 % of the rows": 0.1,
    "one site": 0.0,
}


def without(sites: Mapping[str, FloatArray], share: float | None, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return the rows that are left by site."""
    if share == 0.0:
        return dict(list(sites.items())[1:])
    n = sum(map(len, sites.values()))
    stays = np.ones(n, dtype=bool)
    stays[rng.choice(n, size=1 if share is None else round(share * n), replace=False)] = False
    parts = np.split(stays, np.cumsum([len(rows) for rows in sites.values()])[:-1])
    return {site: rows[part] for (site, rows), part in zip(sites.items(), parts, strict=True)}


def timed(sites: Mapping[str, FloatArray], seed: int, settings: Mapping[str, Any]) -> tuple[flareclust.Result, float]:
    started = time.perf_counter()
    result = flareclust.run("lloyd", sites, seed=seed, tol=0.0, rounds=1000, profile=False, **settings)
    return result, time.perf_counter() - started


def measured(name: str, seeds: int) -> list[dict[str, Any]]:
    """Return a line for each thing that is withdrawn from a data set."""
    X, settings, found = load(name).X, DATA[name], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows = {f"site-{i}": X[part] for i, part in enumerate(np.array_split(rng.permutation(len(X)), SITES))}
        with tempfile.TemporaryDirectory() as folder:
            flareclust.run(
                "lloyd", rows, seed=seed, tol=0.0, rounds=1000, profile=False, out=Path(folder) / "run", **settings
            )
            for what, share in WITHDRAWN.items():
                left = without(rows, share, rng)
                fresh, own = timed(left, seed, settings)
                again, less = timed(left, seed, {**settings, "start_from": Path(folder) / "run"})
                found.append(
                    {
                        "what": what,
                        "fresh": fresh.rounds,
                        "again": again.rounds,
                        "faster": own / less,
                        "inertia": _inertia(again) / _inertia(fresh),
                    }
                )
    return [
        {"data": name, "what": what, **_medians([one for one in found if one["what"] == what])} for what in WITHDRAWN
    ]


def _inertia(result: flareclust.Result) -> float:
    return float(result.metrics["inertia"] or np.nan)


def _medians(lines: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [one["inertia"] for one in lines]
    return {
        "fresh": statistics.median(one["fresh"] for one in lines),
        "again": statistics.median(one["again"] for one in lines),
        "fewer": statistics.median(one["fresh"] / one["again"] for one in lines),
        "faster": statistics.median(one["faster"] for one in lines),
        "inertia": [min(ratios), statistics.median(ratios), max(ratios)],
    }


def table(record: dict[str, Any]) -> str:
    """Return what stands on the page."""
    about = (
        f"{measured_on(record)} (`python -m benchmarks.restart --record`): `lloyd` until nothing moves, ten sites, medians over "
        f"{record['seeds']} seeds (splits, starts and withdrawn rows). Seconds are of the engine `inprocess`; where sites are far away, exchanges count. Inertia is in units of "
        "that of the fresh run: median, least and largest."
    )
    rows = [
        about,
        "",
        "| data | withdrawn | exchanges, fresh | from the last centroids | fewer | faster | inertia |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for line in record["lines"]:
        least, middle, most = line["inertia"]
        rows.append(
            f"| {line['data']} | {line['what']} | {line['fresh']:g} | {line['again']:g} | {line['fewer']:.1f} times | "
            f"{line['faster']:.1f} times | {middle:.4f} ({least:.4f} to {most:.4f}) |"
        )
    return "\n".join(rows)


def page_with(text: str, record: dict[str, Any]) -> str:
    """Return the page with the table of a record."""
    before, _, rest = text.partition("<!-- restart -->\n")
    after = rest.partition("<!-- /restart -->")[2]
    return f"{before}<!-- restart -->\n{table(record)}\n<!-- /restart -->{after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="of splits, starts and withdrawn rows")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    timed({"a": np.eye(4), "b": np.eye(4)}, 0, {"k": 2})  # compiles
    lines = [line for name in DATA for line in measured(name, options.seeds)]
    about = {"date": date.today().isoformat(), "cores": os.cpu_count(), "load": load, "seeds": options.seeds}
    record = {**about, "lines": lines}
    print(table(record))
    if options.record:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
