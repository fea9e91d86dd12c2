"""The alerts of a Prefect server, as docs/schedules.md sets them up, and who gets them."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.paths import ROOT
from tests.patience import PATIENCE
from tests.scheduler import Scheduler


@contextlib.contextmanager
def alerts(scheduler: Scheduler) -> Iterator[list[str]]:
    """Make the page's block and automation at a server; give the texts that are sent from then on, as they come."""
    page = (ROOT / "docs" / "schedules.md").read_text().partition("## Alerts")[2].partition("## The alias")[0]
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (automation,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    with _hook() as (address, texts):
        (scheduler.folder / "block.py").write_text(block.replace("https://chat.example.org/hook", address))
        made = [sys.executable, "block.py"]
        limits = {"env": scheduler.env, "cwd": scheduler.folder, "timeout": PATIENCE, "text": True}
        done = subprocess.run(made, check=True, stdout=subprocess.PIPE, **limits).stdout.split()
        file = scheduler.folder / "alerts.yaml"
        file.write_text(automation.replace("00000000-0000-0000-0000-000000000000", done[-1]))
        scheduler.run("automation", "create", "--from-file", str(file))
        yield texts


@contextlib.contextmanager
def _hook() -> Iterator[tuple[str, list[str]]]:
    """Listen as a chat's webhook does; give its address and the texts that came."""
    texts: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook", texts
        finally:
            server.shutdown()
