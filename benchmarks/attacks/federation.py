"""Provisioned sites with real processes, an honest or a malicious server, and a lead; what they have is looked at after each attack.

The federation is that of tests/integration/federation: kits of our Builder, started by their own scripts.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attacks.case import Found, recovered
from benchmarks.attacks.malicious_server import CLAIMS, HEARD, ORDERS
from flareclust._foundation.typing import FloatArray
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import remove_policy, write_policy

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "integration" / "federation"

#: Longest that a job may take.
PATIENCE = 300.0

#: Environment variables with which sites and server are started, and that nobody else is to learn.
SECRETS = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL")


def from_tests() -> None:
    """Have the helpers of the tests with processes found by their plain names, as those tests do."""
    sys.path[:0] = [str(folder) for folder in (TESTS, TESTS.parent) if str(folder) not in sys.path]


class Attacked:
    """A federation whose sites have these rows and the policy of their kits.

    Args:
        rows: by site.
        malicious: whether the server is.
        policy: of all sites, as the Builder takes it.
        streams: the site that lets its log go to the server, if one does.
        relays: the sites behind relays, by relay.
    """

    def __init__(
        self,
        rows: Mapping[str, FloatArray],
        *,
        malicious: bool,
        policy: Mapping[str, Any],
        streams: str | None = None,
        relays: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        from_tests()
        from by_hand import SECRET_ID
        from harness import SERVER, Federation

        self.rows, self.policy, self.jobs = dict(rows), dict(policy), 0
        self.server, self.sites = SERVER, tuple(rows)
        self.federation = Federation(self.sites, relays=relays, policy=self.policy)
        try:
            for site, own in rows.items():
                folder = self.federation.kit(site) / "data"
                folder.mkdir()
                table = np.column_stack([np.arange(len(own)) + SECRET_ID, own])
                names = np.array(["id", *(f"x{j}" for j in range(own.shape[1]))])
                np.savez(folder / "rows.npz", X=table, columns=names)
                self.federation.configure(site, path=str(folder / "rows.npz"), id="id")
            if streams is not None:
                resources = self.federation.kit(streams) / "local" / "resources.json.default"
                changed = json.loads(resources.read_text()) | {"allow_log_streaming": True}
                resources.write_text(json.dumps(changed, indent=2) + "\n")
            self.orders = self.federation.folder / "orders.json"
            if malicious:
                self.federation.pass_on(self.server, ORDERS)
            self.federation.start(*self.federation.relays)
            for host in (*self.sites, self.server):
                own = {name: self.secret(host, name) for name in SECRETS}
                self.federation.start(host, env=own | (self._malice() if malicious and host == self.server else {}))
            self.federation.wait_connected()
        except BaseException:
            self.federation.close()
            raise

    @staticmethod
    def secret(host: str, name: str) -> str:
        """Return what one of the `SECRETS` is at a host."""
        return f"secret-{host}-{name.lower()}"

    def _malice(self) -> dict[str, str]:
        """Return the environment that makes a server malicious. Its flareclust stays the one that is installed."""
        path = self.federation.folder / "malicious"
        path.mkdir()
        (path / "sitecustomize.py").symlink_to(ROOT / "benchmarks" / "attacks" / "malicious" / "sitecustomize.py")
        (path / "benchmarks").symlink_to(ROOT / "benchmarks")
        return {"PYTHONPATH": str(path), ORDERS: str(self.orders)}

    # ---- attacks ----

    def exported(self, algorithm: str, *, options: JobOptions, **params: Any) -> Path:
        """Write an honest job into a new folder."""
        self.jobs += 1
        return export_job(build_job(get(algorithm), params, options), self.federation.folder / "jobs" / str(self.jobs))

    def server_asks(self, job: Path, **orders: Any) -> tuple[FloatArray, Mapping[str, Any]]:
        """Run a job whose server follows the orders; return its claims (c, d), and how often it was answered and refused."""
        self.orders.write_text(json.dumps(orders), encoding="utf-8")
        folder = self.federation.run(job, patience=PATIENCE)
        if not (folder / CLAIMS).exists():
            text = "\n".join(log.read_text()[-2000:] for log in folder.rglob("*log.txt"))
            raise RuntimeError(f"the malicious server did not come to its end: {text}")
        with np.load(folder / CLAIMS) as claims:
            return claims["claims"], json.loads((folder / HEARD).read_text(encoding="utf-8"))

    @contextmanager
    def without_policy(self) -> Iterator[None]:
        """Take the sites' policies away for a while, as their operators could."""
        try:
            for site in self.sites:
                remove_policy(self.federation.kit(site) / "local")
            yield
        finally:
            for site in self.sites:
                write_policy(self.federation.kit(site) / "local", Policy.of(self.policy))

    # ---- what is left of the kits ----

    def files(self) -> dict[Path, bytes]:
        """Return all files that say what jobs may do."""
        from by_hand import files_of

        return dict(files_of(self.federation))

    def found(
        self,
        before: Mapping[Path, bytes],
        claims: Sequence[FloatArray] | FloatArray,
        asked: str,
        control: int | None = None,
        sites: Sequence[str] | None = None,
    ) -> Found:
        """Return what an attack has got, and what has changed since."""
        from by_hand import marks

        after, ran = self.files(), marks(self.federation)
        rows = np.concatenate([self.rows[site] for site in sites or self.sites])
        changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
        title = f"{len(self.sites)} sites, {' and '.join(f'{len(self.rows[s]):,}' for s in sites or self.sites)} rows"
        return Found(title, recovered(list(claims), rows), len(rows), asked, control, len(changed), len(ran))
