"""Random schedules of faults, and what they are judged by, without processes."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from benchmarks.attacks.federation import from_tests
from benchmarks.chaos import oracle, soak
from benchmarks.chaos.oracle import options_of, silent_twin, wrong_in_failure, wrong_in_result, wrong_in_time
from benchmarks.chaos.schedule import (
    FAULTS,
    FIRST_JOBS,
    JOBS,
    LATER,
    LATER_FROM,
    LATEST,
    SERVER,
    SITES,
    Fault,
    Schedule,
)
from benchmarks.pages.reliability_random import WORDS, added, counted
from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.protocol.registry import get
from flareclust.testing import iid_sites


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("rows"), {}
    for site, rows in zip(SITES, iid_sites(m=3, k=5)[0].values(), strict=True):
        found[site] = folder / f"{site}.npy"
        np.save(found[site], rows)
    return found


def struck(*hosts, start=1.0, seconds=10.0):
    return Schedule(0, ("feca",), tuple(Fault("kill", host, start, seconds, 0.5) for host in hosts))


def outcome(job, files):
    name, params, _ = JOBS[job]
    return run_inprocess(get(name), params, files, options_of(job))


def test_a_seed_is_always_the_same_schedule_and_all_faults_come_up_at_server_and_sites():
    schedules = [Schedule.of(seed) for seed in range(LATER_FROM)]
    assert schedules[:20] == [Schedule.of(seed) for seed in range(20)]
    faults = [fault for schedule in schedules for fault in schedule.faults]
    assert {fault.kind for fault in faults} == set(FAULTS)
    more = [Schedule.of(seed) for seed in range(LATER_FROM, 2 * LATER_FROM)]
    later = {fault.kind for schedule in more for fault in schedule.faults}
    assert later == {*FAULTS, *LATER} == set(WORDS)
    assert {fault.host for fault in faults} == {SERVER, *SITES}
    assert {fault.kind for fault in faults if fault.host == SERVER} == {k for k, own in FAULTS.items() if own[1]}
    assert {job for schedule in schedules for job in schedule.jobs} == set(list(JOBS)[:FIRST_JOBS])
    assert {job for schedule in more for job in schedule.jobs} == set(JOBS)
    assert all(0 <= fault.start <= LATEST for fault in faults)


@pytest.mark.parametrize("job", JOBS)
def test_a_result_of_all_sites_is_right(job, files):
    assert wrong_in_result(struck("east"), job, outcome(job, files), files) == []


def test_a_site_that_fell_silent_is_silent_in_the_twin_too(files):
    """Without a site from its third exchange on, as NVFlare's engines record it."""
    whole = outcome("fkm", files)
    rounds = [
        dict(record, sites=[s for s in record["sites"] if i < 3 or s != "west"])
        for i, record in enumerate(whole.rounds)
    ]
    found = replace(whole, rounds=rounds, refused={"west": "was lost"})
    twin = silent_twin("fkm", found, files)
    assert twin.refused.keys() == {"west"}
    assert [record["sites"] for record in twin.rounds] == [record["sites"] for record in rounds]
    same = replace(found, arrays=twin.arrays, metrics=twin.metrics)
    assert wrong_in_result(struck("west"), "fkm", same, files) == []
    assert any("differ" in text for text in wrong_in_result(struck("west"), "fkm", found, files))
    assert any("nothing happened to" in text for text in wrong_in_result(struck("east"), "fkm", same, files))
    assert any("not named" in text for text in wrong_in_result(struck("west"), "fkm", replace(same, refused={}), files))


def test_a_bit_or_a_metric_that_differs_is_found(files):
    found = outcome("feca", files)
    centroids = np.nextafter(found.centroids, np.inf)
    assert wrong_in_result(
        struck("east"), "feca", replace(found, arrays=found.arrays | {"centroids": centroids}), files
    )
    assert wrong_in_result(struck("east"), "feca", replace(found, metrics=found.metrics | {"inertia": 0.0}), files)


def test_a_failure_needs_a_cause_and_a_reason():
    failed = JobFailed("fewer sites are left than the job needs; lost: east, west")
    assert wrong_in_failure(struck("east", "west"), "feca", failed) == []
    assert wrong_in_failure(struck(SERVER), "feca", failed) == []
    assert "although enough sites were well" in wrong_in_failure(struck("east"), "feca", failed)[0]
    assert wrong_in_failure(struck("east"), "lloyd, secure sums", failed) == [], "it needs all sites"
    unknown = JobFailed("NVFlare ended the job J with X and no reason that this kit may read; see log.txt")
    assert "no reason" in wrong_in_failure(struck(SERVER), "feca", unknown)[0]
    assert "ValueError: odd" in wrong_in_failure(struck(SERVER), "feca", ValueError("odd"))[0]


def test_a_job_that_takes_longer_than_promised_is_late():
    bound = 11.0 + oracle.TASK_TIMEOUT + 60 + oracle.USUAL
    assert wrong_in_time(struck("east"), "feca", 1, bound - 1) == []
    assert wrong_in_time(struck("east"), "feca", 1, bound + 1)
    assert wrong_in_time(struck("east"), "feca", 2, bound + 1) == []


def test_records_are_counted():
    job = {"job": "feca", "attempts": 2, "seconds": 1.0, "refused": {}, "failed": ""}
    lost = job | {"attempts": 1, "refused": {"east": "was lost"}}
    failed = job | {"attempts": 1, "failed": "why"}
    records = [
        {
            "seed": 3,
            "faults": ["kill east at 1.0 s", "power cut west at 2.0 s for 3.0 s"],
            "jobs": [job, lost],
            "wrong": [],
        },
        {"seed": 4, "faults": ["cut west at 2.0 s for 3.0 s"], "jobs": [failed], "wrong": ["bad"]},
    ]
    found = counted(records)
    assert (found["schedules"], found["jobs"], found["results"], found["of all sites"]) == (2, 3, 2, 1)
    assert (found["submitted again"], found["broken"]) == (1, [4])
    assert {kind: n for kind, n in found["faults"].items() if n} == {"kill": 1, "power cut": 1, "cut": 1}


def test_every_twentieth_job_of_a_soak_has_a_fault_at_a_site():
    jobs = [soak.job_of(number) for number in range(20 * len(JOBS))]
    assert [bool(job.faults) for job in jobs] == [number % 20 == 19 for number in range(len(jobs))]
    assert Counter(job.jobs[0] for job in jobs if job.faults) == Counter(list(JOBS)), "each kind of job meets one"
    assert {job.jobs[0] for job in jobs[:40]} == set(JOBS)
    assert all(job.hosts <= set(SITES) for job in jobs)


def test_the_record_of_a_soak_has_each_call_by_itself(tmp_path, monkeypatch):
    def record(call, number):
        held = {"server": {"MB": 100.0 * call + 0.1 * number, "files": 30}}
        job = {
            "job": "lloyd",
            "attempts": 1,
            "failed": "" if number else "why",
            "refused": {"a": "b"} if number == 3 else {},
        }
        faults, wrong = ["kill a"] * (number == 3), ["late"] * (number == 5)
        return {
            "seed": number,
            "call": call,
            "held": held,
            "jobs": [job],
            "faults": faults,
            "wrong": wrong,
            "tree": "abc",
        }

    file = tmp_path / "soak.jsonl"
    file.write_text("".join(json.dumps(record(call, i)) + "\n" for call in (1, 2) for i in range(30)))
    monkeypatch.setattr(soak, "SOAK", tmp_path / "record.json")
    monkeypatch.setattr("sys.argv", ["soak", "--record", str(file)])
    assert soak.main() == 0
    first, second = json.loads((tmp_path / "record.json").read_text())
    assert first["MB"] == {"server": [pytest.approx(at) for at in (100.45, 101.45, 102.45)]}
    assert second["MB"]["server"][0] == pytest.approx(200.45)
    assert first["grows"] == {"server": {"MB": 10.0, "files": 0.0}}
    assert {name: first[name] for name in ("jobs", "results", "broken", "faults", "left out", "first", "tree")} == {
        "jobs": 30, "results": 29, "broken": [5], "faults": 1, "left out": 1, "first": 0, "tree": "abc"
    }  # fmt: skip


def test_growth_is_that_within_each_call():
    def record(call, i):
        return {"call": call, "held": {"server": {"MB": 100.0 * call + 0.02 * i, "files": 30}}}

    records = [record(call, i) for call in (1, 2) for i in range(40)]
    assert soak.growth(records) == {"server": {"MB": 2.0, "files": 0.0}}
    assert soak.growth(records[:15]) == {}, "too few to say"


def test_counts_of_two_runs_are_those_of_all_their_records():
    job = {"failed": "", "refused": {}, "attempts": 2}
    first = [{"seed": 3, "faults": ["kill west at 1 s"], "jobs": [job], "wrong": ["hangs"], "tree": "a"}]
    second = [{"seed": 4, "faults": ["cut east at 2 s", "kill east at 3 s"], "jobs": [job, job], "wrong": []}]
    second = [one | {"tree": tree} for one, tree in zip(2 * second, "ab", strict=True)]
    assert added(counted(first), counted(second)) == counted(first + second)
    assert counted(first + second)["seeds"] == {"a": [3, 4], "b": [4]}


def test_a_slow_disk_counts_as_no_slow_link():
    record = {
        "seed": 301,
        "faults": ["slow disk east at 1.0 s for 2.0 s", "slow west at 1.0 s for 2.0 s"],
        "jobs": [],
        "wrong": [],
    }
    assert {kind: n for kind, n in counted([record])["faults"].items() if n} == {"slow": 1, "slow disk": 1}


_WRITES = "import sys, time; began = time.monotonic(); [open(sys.argv[1], 'a').write('x') for _ in range(3)]; print(time.monotonic() - began)"


@pytest.mark.skipif(shutil.which("cc") is None, reason="the library that slows writes needs a C compiler (cc)")
def test_a_slow_disk_holds_up_each_write_to_the_kit(tmp_path, monkeypatch):
    """At least so long; nothing is said of what a busy machine adds."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    from_tests()
    disk = import_module("disk")
    kit, delay = tmp_path / "kit", tmp_path / "delay"
    kit.mkdir()
    disk.hold_up(delay, 300)
    env = {**os.environ, **(disk.slow(tmp_path, kit, delay) or {})}
    command = [sys.executable, "-c", _WRITES, str(kit / "log")]
    assert float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout) >= 3 * 0.3
