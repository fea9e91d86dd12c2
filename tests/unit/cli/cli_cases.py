"""Arguments and files that the tests of the command line share."""

from typing import NamedTuple

import numpy as np

FAST = ("--engine", "inprocess", "--no-track", "--json")

IRIS = ("run", "feca", "--data", "iris", "--n-sites", "3")

FILES = ["disclosure.json", "labels.csv", "picture.png", "report.html", "result.json", "result.npz", "rounds.jsonl"]


class TrialRun(NamedTuple):
    code: int
    out: str
    err: str


def rows(seed=0, n=30):
    """n rows around three far points, in two columns."""
    rng = np.random.default_rng(seed)
    return np.repeat([[0.0, 0.0], [5.0, 5.0], [10.0, 0.0]], n // 3, axis=0) + rng.normal(0, 0.1, (n, 2))


def write(path, table, header="a,b"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in table)]) + "\n")


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
