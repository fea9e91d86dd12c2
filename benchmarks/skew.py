"""All mixtures of two versions of flareclust at a server and three sites: jobs find the same bits, or say why they do not run.

    python -m benchmarks.skew OTHER --out skew.jsonl    # a wheel, a checkout, or a number for this version under that number

The lead has this version. Each host has a kit of NVFlare's to which its version's `flareclust site allow` was applied. Rows are
made up. A record per mixture is appended to the file; those that are there already are not run again. Ends with 1 where a job found
other bits, or nothing, without a sentence that names a host with the other version.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.federation import from_tests
from flareclust import load_result
from flareclust.testing import iid_sites

from_tests()

from harness import LEAD, SERVER, Federation
from versions import renumbered, unpacked

from tests.patience import PATIENCE

SITES = ("east", "north", "west")
HOSTS = (SERVER, *SITES)

#: The jobs of each mixture: what is said to `flareclust run`.
JOBS = {
    "lloyd": ("lloyd",),
    "lloyd, secure sums": ("lloyd", "--secure-sums"),
    "portfolio": ("portfolio",),
    "portfolio, secure sums": ("portfolio", "--secure-sums"),
}

_K, _SEED = 5, 3
THIS, OTHER = "this", "other"

#: The mixture in which no host has the other version.
_NOBODY = "none"

_LEFT_OUT = re.compile(r"^(?:left out|error): .*$", re.MULTILINE)


class Mixed(Federation):  # type: ignore[misc]
    """A federation whose hosts have one of two versions each."""

    def __init__(self, other: Path) -> None:
        self.other, self.version = other, dict.fromkeys(HOSTS, "")
        super().__init__(SITES, ours=False)
        parts = iid_sites(m=len(SITES), k=_K)[0].values()
        for site, rows in zip(SITES, parts, strict=True):
            np.save(self.folder / f"{site}.npy", rows)
        for host in HOSTS:
            shutil.copytree(self.kit(host) / "local", self._new(host))
        self.flareclust(THIS, "site", "allow", self.kit(LEAD))

    def _new(self, host: str) -> Path:
        return Path(self.folder) / f"{host}.local"

    def _environment(self, host: str) -> dict[str, str]:
        environment: dict[str, str] = super()._environment(host)
        return environment | self._path(self.version[host])

    def _path(self, version: str) -> dict[str, str]:
        return {"PYTHONPATH": str(self.other)} if version == OTHER else {}

    def flareclust(self, version: str, *words: object, good: bool = True) -> str:
        """Run the command of a version; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "flareclust", *map(str, words)],
            env=super()._environment(LEAD) | self._path(version),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if good and done.returncode:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def install(self, versions: Mapping[str, str]) -> None:
        """Give hosts their versions as their operators would, and start them; those that have theirs go on."""
        new = [host for host in HOSTS if versions[host] != self.version[host]]
        if SERVER in new:
            self.stop(*new)
        else:
            self.leave(*new)  # else the server would count a site as connected before it has registered again
        for host in new:
            local = self.kit(host) / "local"
            shutil.rmtree(local)
            shutil.copytree(self._new(host), local)
            self.version[host] = versions[host]
            self.flareclust(versions[host], "site", "allow", self.kit(host))
            if host != SERVER:
                self.configure(host, path=f"{self.folder}/{host}.npy")
        self.start(*new)
        self.wait_connected()

    def record(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Give hosts their versions and return what came of all jobs."""
        self.install(versions)
        return {"other": written(versions), "jobs": {job: self.outcome(job) for job in JOBS}}

    def outcome(self, job: str) -> dict[str, Any]:
        """Run a job as the lead; return the digest of its centroids, and what was said of hosts that had no part."""
        out = Path(self.folder) / "result"
        shutil.rmtree(out, ignore_errors=True)
        quorum = len(SITES) if "secure" in job else len(SITES) - 1
        asked = {"engine": "production", "kit": self.kit(LEAD), "k": _K, "seed": _SEED, "min-sites": quorum}
        words = [f"--{name}={value}" for name, value in asked.items()]
        said = self.flareclust(THIS, "run", *JOBS[job], *words, "--no-track", "--out", out, good=False)
        digest = ""
        if (out / "result.json").exists():
            digest = hashlib.sha256(load_result(out).centroids.tobytes()).hexdigest()[:12]
        return {"centroids": digest, "said": _LEFT_OUT.findall(said) or ([] if digest else [said[-400:]])}


def mixtures() -> Iterator[dict[str, str]]:
    """Yield the version of each host, with one host changed at a time."""
    for number in range(2 ** len(HOSTS)):
        code = number ^ number >> 1
        yield {host: OTHER if code >> bit & 1 else THIS for bit, host in enumerate(HOSTS)}


def written(versions: Mapping[str, str]) -> str:
    """Return a mixture as text: the hosts that have the other version."""
    return ", ".join(host for host, version in versions.items() if version == OTHER) or _NOBODY


def show(records: list[dict[str, Any]]) -> None:
    """Print what came of each mixture and job."""
    alone = _alone(records)
    for record in records:
        print(f"other version at {record['other']}")
        for job, found in record["jobs"].items():
            print(f"  {job}: {'; '.join([_compared(found['centroids'], alone.get(job)), *found['said']])}")


def _alone(records: list[dict[str, Any]]) -> dict[str, str]:
    """Return the digest of each job's centroids where nobody has the other version."""
    return {job: record["jobs"][job]["centroids"] for record in records if record["other"] == _NOBODY for job in JOBS}


def _compared(bits: str, alone: str | None) -> str:
    return "no result" if not bits else "the same bits" if bits == alone else "other bits"


def unexplained(records: list[dict[str, Any]]) -> list[str]:
    """Return the mixtures and jobs that found other bits, or nothing, and named no host with the other version as the reason."""
    alone, found = _alone(records), []
    for record in records:
        others = [] if record["other"] == _NOBODY else record["other"].split(", ")
        named = re.compile(rf"\b(?:{'|'.join(others)})\b" if others else "(?!)")
        for job, outcome in record["jobs"].items():
            what = _compared(outcome["centroids"], alone.get(job))
            reason = "left out: " if outcome["centroids"] else "error: "
            explained = any(said.startswith(reason) and named.search(said) for said in outcome["said"])
            if what != "the same bits" and not explained:
                found.append(f"other version at {record['other']}, {job}: {what}")
    return found


def main() -> int:
    """Run the mixtures that have no record yet, and show all; 1 where one is unexplained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", help="a wheel, a checkout, or a number")
    parser.add_argument("--out", type=Path, default=Path("skew.jsonl"), help="the records, a line each")
    asked = parser.parse_args()
    known = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    left = [one for one in mixtures() if written(one) not in {record["other"] for record in known}]
    if left:
        with tempfile.TemporaryDirectory(prefix="fc-") as made:
            folder, other = Path(made) / OTHER, Path(asked.other)
            federation = Mixed(unpacked(other, folder) if other.exists() else renumbered(folder, asked.other))
            try:
                for versions in left:
                    known.append(federation.record(versions))
                    with asked.out.open("a") as file:
                        file.write(json.dumps(known[-1]) + "\n")
            finally:
                federation.close()
    show(known)
    for one in (silent := unexplained(known)):
        print(f"without a reason: {one}", file=sys.stderr)
    return int(bool(silent))


if __name__ == "__main__":
    sys.exit(main())
