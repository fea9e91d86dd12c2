"""Kits of sites, users and servers, made with NVFlare's own functions, for tests of who has signed what."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from nvflare.lighter.utils import Identity as Subject
from nvflare.lighter.utils import generate_cert, generate_keys, serialize_cert, serialize_pri_key

#: When kits were made, unless a test says otherwise: a while ago.
MADE = datetime.now(timezone.utc) - timedelta(days=30)


class Kits:
    """Makes the folders `startup` of kits, of several federations.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roots: dict[str, Any] = {}

    def __call__(
        self,
        name: str,
        role: str | None = None,
        root: str = "ours",
        begins: datetime | None = None,
        ends: datetime | None = None,
    ) -> Path:
        """Return a new startup/: of a site or a server, or with a role of a user; `root` names the federation."""
        if root not in self._roots:
            private, public = generate_keys()
            certificate = generate_cert(Subject(root), Subject(root), private, public, ca=True, not_valid_before=MADE)
            self._roots[root] = private, certificate
        private, public = generate_keys()
        subject, dates = Subject(name, "an org", role), {"not_valid_before": begins or MADE, "not_valid_after": ends}
        certificate = generate_cert(subject, Subject(root), self._roots[root][0], public, **dates)
        startup = self._folder / root / name / "startup"
        startup.mkdir(parents=True)
        (startup / "client.key").write_bytes(serialize_pri_key(private))
        (startup / "client.crt").write_bytes(serialize_cert(certificate))
        (startup / "rootCA.pem").write_bytes(serialize_cert(self._roots[root][1]))
        (startup / "fed_client.json").write_text(json.dumps({"servers": [{"name": "project", "identity": "server"}]}))
        return startup
