"""A provisioned federation to which everything of a schedule can happen: hosts with disks and clocks of their own, and links that can be slow."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np
import psutil

from benchmarks.attacks.federation import from_tests
from benchmarks.chaos.schedule import SERVER, SITES, Fault
from benchmarks.chaos.slow_links import Link, SlowLinks
from flareclust._foundation.errors import JobFailed
from flareclust.protocol.outcome import SUMMARY, read
from flareclust.testing import iid_sites

from_tests()

import clock
import disk
import network
import processes
from harness import LEAD, Federation, wait_until

__all__ = ["LEAD", "Shaken", "wait_until"]

#: The size of each host's disk.
_DISK = "400m"

#: Seconds after which the server counts a site as gone.
HEART_BEAT = 20

#: Crashes of the server after which an operator starts it: NVFlare's script gives up at the fifth start within 300 s of the one before,
#: and a full disk can cost a start, too.
_MOST_CRASHES = 2

#: The furthest jump of a clock, in seconds, the longest delay of a slow link, and of a write to a slow disk, in milliseconds.
_JUMP, _DELAY, _WRITE = 7200, 0.3, 250

_BITS = 1_000_000 / 8


class _Bridged(network.Namespaces):
    """Namespaces whose hosts reach the server over the machine, which forwards to it."""

    @property
    def server_address(self) -> str:
        """The machine's own address on the bridge."""
        return f"{self._net}.1"


class Shaken(Federation):  # type: ignore[misc]
    """A server and three sites with rows, each with a disk and a clock of its own, behind links that can be slow.

    Args:
        relays: the sites that connect to a relay, by relay.
    """

    def __init__(self, relays: Mapping[str, Sequence[str]] | None = None) -> None:
        self.mounted: list[Path] = []
        self._crashes = 0
        super().__init__(SITES, relays=relays, make_network=_Bridged, heart_beat_timeout=HEART_BEAT)
        parts = iid_sites(m=len(SITES), k=5)[0].values()
        for host in self.hosts:
            self._give_disk(self.kit(host))
            clock.jump(self._clock(host), 0)
            disk.hold_up(self._delay(host), 0)
        for site, rows in zip(SITES, parts, strict=True):
            self.rows(site).parent.mkdir()
            np.save(self.rows(site), rows)
            self.configure(site, path=str(self.rows(site)))
        here, server = self.network.server_address, self.network.address(SERVER)
        self.links = SlowLinks(here, self.network.port, server)

    def rows(self, site: str) -> Path:
        """Return the file of a site."""
        return Path(self.kit(site)) / "data" / "rows.npy"

    def _give_disk(self, kit: Path) -> None:
        """Put a kit on a file system of its own, which can be filled."""
        aside = kit.with_name(f"{kit.name}.aside")
        kit.rename(aside)
        kit.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "disk", str(kit)], check=True)
        self.mounted.append(kit)
        shutil.copytree(aside, kit, dirs_exist_ok=True)
        shutil.rmtree(aside)

    def _clock(self, host: str) -> Path:
        return Path(self.folder) / f"{host}.clock"

    def _delay(self, host: str) -> Path:
        return Path(self.folder) / f"{host}.delay"

    def start(self, *hosts: str, env: Mapping[str, str] | None = None) -> None:
        """Start hosts, each with its own clock and disk."""
        for host in hosts:
            own = clock.shifted(self.folder, self._clock(host)) or {}
            slow = disk.slow(self.folder, self.kit(host), self._delay(host)) or {}
            both = " ".join(part["LD_PRELOAD"] for part in (own, slow) if part)
            super().start(host, env={**own, **slow, "LD_PRELOAD": both, **(env or {})})

    @contextmanager
    def running(self) -> Iterator["Shaken"]:
        """Give the federation with all its sites connected, over links that are fast until they are made slow."""
        with ExitStack() as ended:
            try:
                ended.enter_context(self.links.running())
                ended.enter_context(super().running())
            except BaseException:
                self.close()
                raise
            yield self

    def start_afresh(self) -> None:
        """Start the server by hand where it has crashed so often that NVFlare's script would soon start it no more."""
        if self._crashes >= _MOST_CRASHES:
            self._crashes = 0
            self.restart(SERVER)
            self.wait_connected()

    def close(self) -> None:
        """Stop everything and remove network, disks and folder; safe to call again."""
        with suppress(AttributeError):  # before there were kits
            self.stop()
        while self.mounted:
            subprocess.run(["umount", "--lazy", str(self.mounted.pop())], check=True)
        super().close()

    # ---- faults ----

    def begin(self, fault: Fault) -> None:
        """Let a fault happen."""
        host, kit = fault.host, self.kit(fault.host)
        match fault.kind:
            case "kill":
                processes.kill(processes.job_of_kit(kit))
            case "restart" if host == SERVER:
                self._crashes += 1
                self.crash_server()
            case "restart":
                self.restart(host)
            case "power cut":
                self.kill_host(host)
            case "pause":
                self.pause(host)
            case "cut":
                self.cut(host)
            case "reset":
                self.links.reset(None if host == SERVER else self.network.address(host))
            case "slow":
                self.links.slow(self.network.address(host), Link(_DELAY * fault.size, _BITS, 0.05))
            case "clock":
                clock.jump(self._clock(host), round((2 * fault.size - 1) * _JUMP))
            case "full disk":
                _fill(kit / "ballast")
            case "slow disk":
                disk.hold_up(self._delay(host), round(_WRITE * (0.1 + 0.9 * fault.size)))

    def end(self, fault: Fault) -> None:
        """Let what lasts of a fault be over."""
        host = fault.host
        match fault.kind:
            case "power cut" if not self.processes(host):  # another fault has not started it meanwhile
                self.start(host)
            case "pause":
                self.resume(host)
            case "cut":
                self.mend(host)
            case "slow":
                self.links.mend(self.network.address(host))
            case "clock":
                clock.jump(self._clock(host), 0)
            case "full disk":
                (self.kit(host) / "ballast").unlink(missing_ok=True)
            case "slow disk":
                disk.hold_up(self._delay(host), 0)

    def long_processes(self, host: str) -> list[psutil.Process]:
        """Return the processes of a host that outlive jobs, without the script that starts them again."""
        jobs = processes.job_of_kit(self.kit(host))
        return [process for process in processes.without_daemon(self.kit(host)) if process not in jobs]

    def temporary_files(self) -> list[str]:
        """Return what is in the folders for temporary files of all hosts, and for downloads at the server, with its size.

        But for what NVFlare keeps: the empty folder of a download, which the server removes after a later job, and a packed job that was
        submitted a second time, in the folder that the system empties.
        """
        found = [*(Path(self.folder) / "tmp").iterdir(), *(Path(self.kit(SERVER)) / "transfer").glob("*/*")]
        found = [entry for entry in found if entry.parent.name != "tmp" or not is_zipfile(entry)]
        return [f"{entry} ({'a folder' if entry.is_dir() else f'{entry.stat().st_size} bytes'})" for entry in found]

    def damaged_results(self) -> list[Path]:
        """Return where the server has a `result.json`, which is written last, and the rest of the result is missing or damaged."""
        kit = Path(self.kit(SERVER))
        folders = [file.parent for file in kit.rglob(SUMMARY)]
        return [folder for folder in folders if not _is_complete(folder)] + [
            stored for stored in (kit / "jobs-storage").glob("*/workspace") if not _holds_complete(stored)
        ]

    def jobs_running(self) -> list[str]:
        """Return the hosts on which a process of a job runs."""
        return [host for host in self.hosts if processes.job_of_kit(self.kit(host))]


def _fill(ballast: Path) -> None:
    """Fill the disk that a file is on, to the last byte."""
    block = bytes(1 << 20)
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(block):
            pass


def _holds_complete(stored: Path) -> bool:
    """Return whether the folder of a job that has ended, as the server stores it, has a complete result or no `result.json`."""
    with TemporaryDirectory() as folder, suppress(BadZipFile):
        with ZipFile(stored) as archive:
            if SUMMARY not in archive.namelist():
                return True
            archive.extractall(folder)
        return _is_complete(Path(folder))
    return False


def _is_complete(folder: Path) -> bool:
    try:
        read(folder)
    except JobFailed:
        return False
    return True
