"""A site withdraws rows between two jobs: the next one is that of a federation that never had them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import SITES, rows_of
from harness import LEAD

import flareclust
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

GONE = range(0, 40, 3)
#: Those of the jobs; sites compare their columns first where they are provisioned.
SETTINGS = {"seed": 3, "tol": 0.0, "compare": "spread"}


def command(folder: Path, *words: object) -> str:
    """Run `flareclust` and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "flareclust", *map(str, words)],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_same(found: flareclust.Result, expected: flareclust.Result) -> None:
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert found.rounds == expected.rounds
    assert found.job_numbers == expected.job_numbers
    there, here = found.outcome, expected.outcome
    assert {name: there.metrics[name] for name in here.metrics} == here.metrics
    assert there.arrays.keys() == here.arrays.keys()
    for name, array in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[name], array, err_msg=name)


def test_the_next_job_is_that_of_rows_that_never_had_them_and_undo_brings_the_first_back(federation, tmp_path):
    rows = {site: np.load(rows_of(federation, site)) for site in SITES}
    for site, own in rows.items():
        file = federation.kit(site) / "data" / "visits.npz"
        np.savez(file, allow_pickle=False, X=own, patient=np.array([f"{site}-{i}" for i in range(len(own))]))
        federation.configure(site, path=str(file), id="patient")
    kit, ids = federation.kit("north"), tmp_path / "gone.txt"
    ids.write_text("".join(f"north-{i}\n" for i in GONE))

    def job(name: str, *more: object) -> flareclust.Result:
        own = ("run", "lloyd", "--k", 5, "--seed", 3, "--set", "tol=0", "--engine", "production", "--no-track")
        command(tmp_path, *own, "--kit", federation.kit(LEAD), "--min-sites", 3, "--out", name, *more)
        return flareclust.load_result(tmp_path / name)

    first = job("first")
    check_same(first, flareclust.run("lloyd", rows, 5, **SETTINGS))
    printed = command(tmp_path, "site", "withdraw", kit, "--ids", ids)
    assert f"{len(GONE)} rows left out of every job from the next one on" in printed
    assert f"the last one {first.job} " in printed
    [line] = [line for line in log_of(kit) if line["job"] == first.job]
    assert line["held"] == len(GONE)

    again = ("--start", "first", "--match-to", "first")
    second = job("second", *again)
    left = {**rows, "north": np.delete(rows["north"], GONE, axis=0)}
    earlier = {"start_from": tmp_path / "first", "match_to": tmp_path / "first"}
    check_same(second, flareclust.run("lloyd", left, 5, **SETTINGS, **earlier))
    assert second.matched_to == "first"
    assert not np.array_equal(second.centroids, first.centroids)
    assert len((kit / str(second.job) / "labels.csv").read_text().splitlines()) == 1 + len(left["north"])
    line = log_of(kit)[-1]
    assert (line["job"], line["withdrawn"], line["held"]) == (second.job, len(GONE), 0)

    command(tmp_path, "site", "withdraw", kit, "--ids", ids, "--undo")
    check_same(job("third"), first)


def log_of(kit: Path) -> list[dict[str, object]]:
    """Return the lines of a site's log of jobs."""
    return [json.loads(line) for line in command(kit.parent, "site", "log", kit, "--json").splitlines()]
