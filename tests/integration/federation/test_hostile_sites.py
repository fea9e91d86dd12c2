"""Sites that send what they should not: each is named, the others' result is that without it, and the server lives on."""

import re
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import processes
import psutil
import pytest
from conftest import SITES
from faulty import ESCAPES, SECRET
from harness import SERVER, Federation
from jobs import Job

from flareclust.engines.options import JobOptions
from flareclust.platform.receiver import MOST_BYTES

pytestmark = pytest.mark.slow

#: By name: what the site sends, what the user reads, and what happens beside.
LIES = {
    "absurd count": ("a count of 2**60 rows", "counts: holds values above", ""),
    "NaN": ("a centroid of NaN", "centroids: holds NaN or infinite values", ""),
    "too many centroids": ("5,000 centroids where k is 1", "5000 entries where there can be at most 1", ""),
    "huge coordinates": ("a centroid at 1e300", "centroids: holds values beyond 1e+140", ""),
    "unknown object": (
        "an object that NVFlare cannot decode",
        "sent a reply that cannot be decoded",
        "; NVFlare alone would have ended the job",
    ),
    "many objects": (
        "200,000 empty tables in the place of an array",
        "sent a reply that was not decoded: the message is made of more than 10000 objects",
        "",
    ),
    "references": (
        "references to arrays that it keeps",
        "sent references to arrays in the place of arrays",
        "; nothing is fetched",
    ),
    "escapes": (
        "a refusal of a megabyte that clears terminals and imitates NVFlare's log",
        "",
        "; 400 characters are kept, and none that a terminal obeys",
    ),
}


def options(**others: int) -> JobOptions:
    return JobOptions(k=1, min_sites=1, task_timeout=600, assess=False, deadline=600, **others)


def mean_of(files: dict[str, Path], *sites: str) -> np.ndarray:
    return np.mean([np.load(files[site]).mean(axis=0, keepdims=True) for site in sites], axis=0)


def test_bad_replies_are_refused_by_name_and_harm_nobody(federation, files, faulty, record):
    """Two lying sites of three sites in each of four jobs, which the server runs side by side."""
    names = list(LIES)
    pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
    jobs = []
    for pair in pairs:
        faults = dict(zip(("south", "west"), pair, strict=False))
        jobs.append((faults, Job(federation, faulty, options(), {"faults": faults})))
    for faults, job in jobs:
        outcome = job.outcome()
        assert set(outcome.refused) == set(faults)
        honest = [site for site in SITES if site not in faults]
        np.testing.assert_array_equal(outcome.centroids, mean_of(files, *honest))
        for site, fault in faults.items():
            done, words, beside = LIES[fault]
            reported = job.notice(site)
            assert words in reported.text, f"{fault}: {reported.text}"
            assert reported.text.isprintable()
            assert len(reported.text) <= 420
            assert str(SECRET) not in reported.text
            happened = f"the reply is refused, and the others go on{beside}"
            text = f"{reported.text[:60]} ..." if fault == "escapes" else reported.text
            record(fault, f"one of three sites sends {done}", happened, text, reported.at - job.started)
    assert_server_kept_no_secret(federation, [job.outcome().job for _, job in jobs])


def assert_server_kept_no_secret(federation: Federation, ids: list[str]) -> None:
    """No value of a bad reply, and nothing that a terminal obeys, is in what the server wrote about these jobs."""
    unseen = [str(SECRET), repr(SECRET), ESCAPES.splitlines()[0]]
    folders = [federation.kit(SERVER) / job for job in ids]
    for file in [federation.kit(SERVER) / "log.txt", *(f for folder in folders for f in folder.rglob("*.txt"))]:
        text = file.read_text(errors="replace")
        for secret in unseen:
            assert secret not in text, f"{secret!r} of a bad reply reached {file}"


def test_a_reply_to_another_round_is_refused(federation, files, faulty, record):
    params = {"faults": {"west": "replayed round"}, "rounds": 3}
    job = Job(federation, faulty, options(), params)
    outcome = job.outcome()
    assert outcome.refused == {"west": "answered cluster of round 0 where cluster of round 1 was asked"}
    np.testing.assert_array_equal(outcome.centroids, mean_of(files, "north", "south"))
    reported = job.notice("west")
    record(
        "replayed round",
        "one of three sites sends its reply of round 0 again in round 1",
        "the reply is refused, and the others go on",
        reported.text,
        reported.at - job.started,
    )


@pytest.mark.nightly
def test_a_gigabyte_is_refused_before_it_is_received(federation, files, faulty, record):
    # What a process of the server has loaded, such as torch where it is installed, is no matter of the reply.
    peak = Peak(federation)
    Job(federation, faulty, options(), {"faults": {}}).outcome()
    usual = peak.stop()
    peak = Peak(federation)
    job = Job(federation, faulty, options(), {"faults": {"west": "gigabyte"}})
    outcome = job.outcome()
    peaks = peak.stop()
    assert f"more than {MOST_BYTES:,} bytes" in outcome.refused["west"]
    assert set(outcome.refused) == {"west"}
    np.testing.assert_array_equal(outcome.centroids, mean_of(files, "north", "south"))
    assert set(peaks) == set(processes.JOB_MODULES[1:]) | {"parent"}
    growth = max(peaks[name] - usual[name] for name in peaks)
    assert growth < 200 * 2**20, f"processes of the server took {peaks} bytes, without the reply {usual}"
    reported = job.notice("west")
    record(
        "gigabyte",
        "one of three sites sends an array of 1 GiB",
        f"the reply is refused before it is received, and the others go on; no process of the server grows by more than {max(growth, 0) / 2**20:.0f} MiB",
        reported.text,
        reported.at - job.started,
    )


class Peak:
    """The largest resident size so far of the server's parent and job, by the kernel's own account."""

    def __init__(self, federation: Federation) -> None:
        self._kit, self._found, self._over = federation.kit(SERVER), {}, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for process in processes.without_daemon(self._kit):
                with suppress(psutil.NoSuchProcess, OSError, AttributeError):
                    command = process.cmdline()
                    what = processes.JOB_MODULES[1] if processes.JOB_MODULES[1] in command else "parent"
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    size = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024
                    self._found[what] = max(self._found.get(what, 0), size)

    def stop(self) -> dict[str, int]:
        """Stop to look, and return the sizes in bytes."""
        self._over.set()
        self._thread.join()
        return self._found
