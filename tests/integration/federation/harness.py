"""A provisioned federation with mTLS on this machine: a server, sites, a lead, an admin and a member without rights.

Server and sites are started by their kits' own scripts, each in its own network namespace where the machine permits
that. The test is the lead. Faults are made with signals and links; nothing in here is a mock.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import network
import owner
import processes
import psutil
import yaml
from kit_project import ADMIN, LEAD, MEMBER, PROJECT, SERVER, project
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from tests.living import short_folder
from tests.patience import PATIENCE
from tests.run import MARK

__all__ = ["ADMIN", "LEAD", "MEMBER", "SERVER", "Federation", "started", "submitted", "wait_until"]

FOLDERS = "fcf-"

#: What processes of jobs need here beside what jobs need: to be found again, to be measured, and to have a wrong clock.
PASSED_ON = (MARK, "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "CLOCK_SHIFT", "DISK_KIT", "DISK_DELAY")

T = TypeVar("T")


class Federation:
    """Kits of a server, sites and users, and the processes that were started from them.

    Args:
        sites: names of the sites that take part; further ones get a kit and wait.
        late: names of these.
        relays: the sites, by the relay that they connect to; the others connect to the server.
        make_network: returns the network that the hosts are on.
        ours: whether our Builder makes the kits; else they are as NVFlare makes them.
        defaults: arguments of our provisioning Builder.
    """

    def __init__(
        self,
        sites: Sequence[str],
        late: Sequence[str] = (),
        relays: Mapping[str, Sequence[str]] | None = None,
        make_network: Callable[[], network.Network] = network.make_network,
        *,
        ours: bool = True,
        **defaults: object,
    ) -> None:
        remove_stale()
        self.sites, self.relays = tuple(sites), dict(relays or {})
        self.hosts = (SERVER, *self.relays, *sites, *late)
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDERS, dir=short_folder()))
        (self.folder / "owner").write_text(owner.me())
        self.network = make_network()
        try:
            for host in self.hosts:
                self.network.add(host)
            self.defaults = defaults if ours else None
            self.kits = self.provision(self.folder / "kits")
            for host in {*self.hosts} - {*self.relays}:
                self.pass_on(host, *PASSED_ON)
        except BaseException:
            self.close()
            raise

    # ---- kits ----

    def kit(self, name: str) -> Path:
        """Return the folder of a server's, site's or user's kit."""
        return self.kits / name

    def configure(self, site: str, **config: object) -> None:
        """Write the site's own `local/flareclust.yaml`; it is read anew by every job."""
        text = yaml.safe_dump(config, sort_keys=False)
        (self.kit(site) / "local" / "flareclust.yaml").write_text(text, encoding="utf-8")

    def pass_on(self, host: str, *names: str) -> None:
        """Have the processes of a host's jobs get further environment variables, as its operator would."""
        file = self.kit(host) / "local" / "resources.json.default"
        resources = json.loads(file.read_text())
        (launcher,) = [part for part in resources["components"] if part["id"] == "process_launcher"]
        own = launcher.setdefault("args", {})
        own["environment"] = [*own.get("environment", ()), *names]
        file.write_text(json.dumps(resources, indent=2) + "\n")

    def provision(self, workspace: Path) -> Path:
        """Make all kits, anew in a new folder with a root certificate of their own, else once more; return the folder of the kits."""
        file = self.folder / "project.yml"
        file.write_text(yaml.safe_dump(project(self.network, self.hosts, self.relays, self.defaults)))
        command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w", str(workspace), "--force"]
        environment, before = self._environment(SERVER), {*workspace.glob(f"{PROJECT}/prod_*")}
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        kits = {*workspace.glob(f"{PROJECT}/prod_*")} - before
        if len(kits) != 1:
            raise RuntimeError(f"nvflare provision failed: {done.stdout} {done.stderr}")
        return kits.pop()

    def add_site(self, site: str) -> Path:
        """Provision once more with a further site, and hand out its kit; return the folder of all new kits."""
        self.network.add(site)
        self.hosts = (*self.hosts, site)
        made = self.provision(self.kits.parents[1])
        shutil.copytree(made / site, self.kit(site))
        return made

    # ---- processes ----

    def start(self, *hosts: str, env: Mapping[str, str] | None = None) -> None:
        """Start server or sites by their kits' `start.sh`, whose daemon starts a dead process again."""
        for host in hosts:
            self.network.mend(host)
            for name in ("daemon_pid.fl", "pid.fl"):  # of a killed host, where the script would not start
                (self.kit(host) / name).unlink(missing_ok=True)
            with (self.folder / f"{host}.txt").open("ab") as console:
                subprocess.Popen(
                    self.network.command(host, ["bash", str(self.kit(host) / "startup" / "start.sh")]),
                    env=self._environment(host) | dict(env or {}),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                ).wait(PATIENCE)  # it leaves the daemon behind

    def processes(self, *hosts: str) -> list[psutil.Process]:
        """Return daemon, parent and job of the hosts; of all of them unless some are named."""
        return processes.of_kits([self.kit(host) for host in hosts or self.hosts])

    def kill_process(self, host: str) -> None:
        """SIGKILL the process of the running job, as the kernel does when memory is short; the host goes on."""
        found = processes.job_of_kit(self.kit(host))
        if not found:
            raise RuntimeError(f"{host} runs no job")
        processes.kill(found)

    def kill_host(self, host: str) -> None:
        """End a host as a power cut does: its link goes down, and daemon, parent and job are gone at once."""
        if isinstance(self.network, network.Namespaces):
            self.network.cut(host)  # first, so that no last word gets out
        self.stop(host)

    def crash_server(self) -> None:
        """SIGKILL the server's parent and job; its daemon starts the parent again."""
        processes.kill(processes.without_daemon(self.kit(SERVER)))

    def pause(self, host: str) -> None:
        """Stop all processes of a host in their tracks."""
        for process in self.processes(host):
            process.suspend()

    def resume(self, host: str) -> None:
        """Let the processes of a paused host go on."""
        for process in self.processes(host):
            process.resume()

    def cut(self, host: str) -> None:
        """Take a host's link down, and leave its processes alone."""
        self.network.cut(host)

    def mend(self, host: str) -> None:
        """Take a host's link up again."""
        self.network.mend(host)

    def restart(self, *hosts: str, env: Mapping[str, str] | None = None) -> None:
        """Kill hosts and start them again."""
        self.stop(*hosts)
        self.start(*hosts, env=env)

    def stop(self, *hosts: str) -> None:
        """Kill all processes of these hosts, of all hosts unless some are named."""
        for _ in range(5):  # a daemon may just be starting a parent, and a parent a job
            found = self.processes(*hosts)
            if not found:
                return
            processes.kill(found)
        raise RuntimeError(f"cannot be stopped: {self.processes(*hosts)}")

    def leave(self, *hosts: str) -> None:
        """Stop sites and have the server forget them, which it else does when it has missed them for a while."""
        self.stop(*hosts)
        with self.session() as session:
            for host in set(hosts) & {client.name for client in session.get_system_info().client_info}:
                session.remove_client(host)

    def heal(self) -> None:
        """Bring the federation back to how it started, whatever a test did to it: its sites connected, no others."""
        for host in self.hosts:
            self.network.mend(host)
            self.resume(host)
        if not processes.without_daemon(self.kit(SERVER)):
            self.restart(SERVER)
        processes.kill([process for host in self.hosts for process in processes.job_of_kit(self.kit(host))])
        staying = (*self.relays, *self.sites)
        gone = [host for host in staying if not self.processes(host)]
        self.start(*gone)
        late = [host for host in self.hosts[1:] if host not in staying and self.processes(host)]
        if late:
            self.leave(*late)
        self.wait_connected()

    @contextmanager
    def running(self) -> Iterator["Federation"]:
        """Give the federation with all its sites connected; stopped in the end, it must leave no process."""
        try:
            self.start(SERVER, *self.relays, *self.sites)
            self.wait_connected()
            yield self
            self.stop()
            wait_until(lambda: not self.leftovers(), "every process is gone")
        finally:
            self.close()

    def leftovers(self) -> list[str]:
        """Return the command lines of all processes that name this federation's folder."""
        lines = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
        return [line for line in lines if str(self.folder) in line]

    def close(self) -> None:
        """Stop everything and remove network and folder; safe to call again."""
        try:
            if hasattr(self, "kits"):
                self.stop()
        finally:
            self.network.remove()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self, host: str) -> dict[str, str]:
        home, temporary = self.folder / "home" / host, self.folder / "tmp"
        for folder in (home, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        own = {
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own

    # ---- as the lead ----

    @contextmanager
    def session(self, user: str = ADMIN, timeout: float = 10.0) -> Iterator[Session]:
        """Give a session of NVFlare's own API; it is closed in the end, or its threads would keep the test alive."""
        session = new_secure_session(user, str(self.kit(user)), timeout=timeout)
        try:
            yield session
        finally:
            session.close()

    def connected(self) -> list[str]:
        """Return the names of the connected sites."""
        with self.session() as session:
            return sorted(client.name for client in session.get_system_info().client_info)

    def wait_connected(self, sites: Iterable[str] | None = None, patience: float = PATIENCE) -> float:
        """Wait until exactly these sites are connected, all of `sites` by default; return the seconds that it took."""
        wanted = sorted(sites if sites is not None else self.sites)

        def reached() -> bool:
            try:
                return self.connected() == wanted
            except NoConnection:
                return False

        return wait_until(reached, f"{wanted} are connected", patience, every=0.5)

    def run(self, job: Path, user: str = LEAD, patience: float = PATIENCE) -> Path:
        """Submit a job folder by NVFlare's own API; return the folder with what the server wrote."""
        with self.session(user) as session:
            return submitted(session, job, self.folder / "fetched", patience)[1] / "workspace"


@contextmanager
def started(federation: Federation, host: str, kit: Path) -> Iterator[None]:
    """Run another kit's processes on a host, and kill them."""
    script, own = ["bash", str(kit / "startup" / "start.sh")], federation._environment(host)
    subprocess.run(federation.network.command(host, script), env=own, cwd=kit, check=True, timeout=PATIENCE)
    try:
        yield
    finally:
        while found := processes.of_kits([kit]):
            processes.kill(found)


def submitted(session: Session, job: Path, folder: Path, patience: float = PATIENCE) -> tuple[str, Path]:
    """Submit a job folder and wait for its end; return its id and the folder that its result was fetched to.

    A busy machine costs NVFlare's session a connection now and then; it is tried again.
    """

    def connected(call: Callable[..., T], *arguments: object, **options: object) -> T:
        found: list[T] = []

        def answered() -> bool:
            with suppress(NoConnection):
                found.append(call(*arguments, **options))
            return bool(found)

        wait_until(answered, "the server answers", patience, every=0.5)
        return found[0]

    job_id = connected(session.submit_job, str(job))
    connected(session.wait_for_job, job_id, timeout=patience, poll_interval=0.25)
    return job_id, Path(connected(session.download_job_result, job_id, str(folder)))


def wait_until(reached: Callable[[], Any], what: str, patience: float = PATIENCE, every: float = 0.1) -> float:
    """Poll until `reached()` is true and return the seconds that it took.

    Raises:
        TimeoutError: it did not become true in time.
    """
    started = time.monotonic()
    while not reached():
        if time.monotonic() - started > patience:
            raise TimeoutError(f"waited {patience} s in vain until {what}")
        time.sleep(every)
    return time.monotonic() - started


def remove_stale() -> None:
    """End and remove what tests left that were killed before they could do it."""
    for folder in Path(short_folder()).glob(f"{FOLDERS}*"):
        note = folder / "owner"
        if note.is_file() and note.read_text() and not owner.alive(note.read_text()):
            processes.kill(processes.of_kits([folder]))
            shutil.rmtree(folder, ignore_errors=True)
