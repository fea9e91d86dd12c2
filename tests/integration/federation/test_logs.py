"""Logs for programs: `log.json` of a site and of its jobs, and a console of JSON lines where an operator asks for it."""

import json

import pytest
from conftest import SITES
from jobs import Job

from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from tests.paths import ROOT

pytestmark = pytest.mark.slow

SITE = SITES[0]


@pytest.fixture
def console(federation):
    """What a site prints whose operator wants JSON there, as docs/logs.md says, from its next start on."""
    local, printed = federation.kit(SITE) / "local", federation.folder / f"{SITE}.txt"
    config = json.loads((local / "log_config.json.default").read_text())
    config["handlers"]["consoleHandler"]["formatter"] = "jsonFormatter"
    federation.leave(SITE)
    before = printed.stat().st_size
    (local / "log_config.json").write_text(json.dumps(config))
    try:
        federation.start(SITE)
        federation.wait_connected()
        yield lambda: printed.read_bytes()[before:].decode()
    finally:
        (local / "log_config.json").unlink()
        federation.restart(SITE)


def documented():
    """Return the line that docs/logs.md shows."""
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    return json.loads(page.partition("```json\n")[2].partition("```")[0])


def test_each_line_is_an_object_with_the_documented_names(federation, console):
    federation.configure(SITE, path="no-such-file.npy")
    found = Job(federation, get("kfed"), JobOptions(k=5, seed=3, min_sites=1)).outcome()
    assert SITE in found.refused
    kit = federation.kit(SITE)
    site, job = ((folder / "log.json").read_text().splitlines() for folder in (kit, kit / found.job))
    lines = [json.loads(line) for line in (*site, *job)]
    assert all(set(line) == set(documented()) for line in lines)
    (warned,) = [json.loads(line) for line in job if "refused the task cluster" in line]
    assert warned["levelname"] == "WARNING"
    assert warned["fullName"].startswith("flareclust.")
    printed = [json.loads(line) for line in console().splitlines() if line.startswith("{")]
    assert [line for line in printed if line["message"].startswith("Successfully registered client")]
    assert [line for line in printed if "refused the task cluster" in line["message"]]
