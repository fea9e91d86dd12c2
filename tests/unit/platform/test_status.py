"""What `flareclust status` says of a federation; tests/integration/federation/test_status.py asks a real server."""

import json
import os
import re
import time
from datetime import datetime, timezone

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.platform import job_monitor, status
from flareclust.platform.status import federation_status, prometheus_text
from tests.command_line import call
from tests.fake_server import FakeServer
from tests.kit_certificates import write_certificates
from tests.paths import ROOT

LEAD = "lead@hub.org"

#: A second in the year 2100.
ENDS = 4102444800.0


class Server(FakeServer):
    """A server with two connected sites; a third had part in the last job."""

    def __init__(self):
        super().__init__(["RUNNING"])
        self.sites, self.start_time = ["north", "south"], 150.0
        self.listed = [
            job("j2", "FINISHED:COMPLETED", 200.0, ["north: OK", "south: NVFLARE_ERROR: not authorized", "west: OK"]),
            job("j1", "RUNNING", 100.0, ["north: OK"], user="admin@hub.org"),
        ]

    def check_status(self, target_type, targets=None):
        found = super().check_status(target_type, targets)
        return found | {"clients": [one | {"client_last_conn_time": 300.0} for one in found["clients"]]}

    def report_version(self, target_type):
        rules = {"min_count": 10, "budget": 4.0, "spent": 1.0}
        north = {"version": "2.9.0", "flareclust": __version__, "certificate_end": ENDS, "free_disk": 5 * 10**9}
        south = {"version": "2.9.1", "flareclust": "0.1.0", "certificate_end": time.time() + 86400}
        north["rules"] = rules
        return {"server": {"version": "2.9.0"}, "north": north, "south": south}


def job(name, ended, submitted, deployed, user=LEAD):
    about = {"job_id": name, "name": "feca", "submitter_name": user, "submit_time": submitted}
    return about | {"duration": "0:00:09", "status": ended, "job_deploy_detail": ["server: OK", *deployed]}


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr(job_monitor, "open_session", server.session)
    monkeypatch.setattr(status, "server_end", lambda *_: datetime.now(timezone.utc))
    return server


def test_sites_are_connected_or_missing_and_jobs_have_their_refusals(kit, server):
    found = federation_status(kit)
    assert [(site.name, site.connected, site.last_seen, site.nvflare) for site in found.sites] == [
        ("north", True, 300.0, "2.9.0"),
        ("south", True, 300.0, "2.9.1"),
        ("west", False, 200.0, ""),
    ]
    assert [site.expected != "" for site in found.sites] == [True, False, True], (
        "one that took no job need not be there"
    )
    assert found.missing == ["west"]
    assert [(one.id, one.user, one.refusals) for one in found.jobs] == [
        ("j2", LEAD, ["south: not authorized"]),
        ("j1", "admin@hub.org", []),
    ]
    assert any(hint.startswith("the certificate of the server server ends ") for hint in found.hints)
    assert any("j1 was lost" in hint for hint in found.hints), "nobody runs it"
    assert server.opened == server.closed
    assert "one of your last 10 jobs (those to expect" in found.sites[-1].expected, "of any kind"


def test_the_list_of_jobs_is_asked_for_once(kit, server, monkeypatch):
    """Each question is a line of the server's audit log, and the command may run each minute."""
    asked, list_jobs = [], server.list_jobs
    monkeypatch.setattr(server, "list_jobs", lambda **how: asked.append(how) or list_jobs(**how))
    assert federation_status(kit, jobs=1).missing == ["west"]
    assert len(asked) == 1


def test_sites_that_are_named_are_expected_and_no_others(kit, server):
    assert federation_status(kit, ["north", "east"]).missing == ["east"]
    assert federation_status(kit, ["north"]).missing == []


def test_a_user_who_may_not_ask_for_versions_gets_the_rest(kit, server, monkeypatch):
    def refuse(target_type):
        raise AuthorizationError("no")

    monkeypatch.setattr(server, "report_version", refuse)
    found = federation_status(kit)
    assert [(site.nvflare, site.flareclust) for site in found.sites] == [("", "")] * 3
    assert [hint for hint in found.hints if hint.startswith("versions, disks, budgets and ends of certificates")]
    assert found.nvflare == ""


def test_versions_and_certificates_that_need_something_done_are_hints(kit, server):
    now = datetime.now(timezone.utc)
    write_certificates(kit, client=(datetime(2020, 1, 1, tzinfo=timezone.utc), now.replace(microsecond=0)))
    found = federation_status(kit)
    sites = {site.name: (site.flareclust, site.certificate_end) for site in found.sites}
    assert sites["north"] == (__version__, ENDS)
    assert sites["west"] == ("", None)
    assert found.nvflare == "2.9.0"
    assert set(found.certificate_ends) == {LEAD, "server"}
    assert found.certificate_ends[LEAD] == now.replace(microsecond=0).timestamp()
    assert (
        f"south has flareclust 0.1.0, and {__version__} is installed here: it refuses jobs whose messages differ"
        in found.hints
    )
    assert [hint for hint in found.hints if hint.startswith("the certificate of south ends ")]
    assert not [hint for hint in found.hints if "north" in hint]


def test_the_free_disk_and_the_privacy_budget_of_sites_that_tell_them_are_shown(kit, server, capsys, tmp_path):
    north, south, _ = federation_status(kit).sites
    assert (north.free_disk, north.rules, north.budget_left) == (
        5e9,
        {"min_count": 10, "budget": 4.0, "spent": 1.0},
        0.75,
    )
    assert (south.free_disk, south.rules, south.budget_left) == (None, None, None)
    assert call("status", "--kit", kit) == 1
    assert "5.0 GB 75%" in " ".join(capsys.readouterr().out.split())
    assert call("status", "--kit", kit, "--html", tmp_path / "page.html") == 1
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "5.0 GB" in text
    assert "75%" in text


def test_little_disk_and_little_budget_are_hints(kit, server, monkeypatch):
    said = {"free_disk": 10**9, "rules": {"budget": 4.0, "spent": 3.9}}
    monkeypatch.setattr(server, "report_version", lambda target_type: {"north": said})
    hints = federation_status(kit).hints
    assert "north has 1.0 GB of free disk: remove old folders of jobs there (flareclust prune, --labels)" in hints
    assert "north has 3% of its privacy budget left, and refuses jobs that need more" in hints
    said["rules"] = {"budget": 4.0, "spent": 9.0}
    assert federation_status(kit).sites[0].budget_left == 0.0


@pytest.mark.parametrize(
    "reported", [{"error": "No replies"}, "2.9.0", None, {"version": None, "certificate_end": "soon"}]
)
def test_a_site_that_reports_no_versions_has_none(kit, server, monkeypatch, reported):
    monkeypatch.setattr(server, "report_version", lambda target_type: {"server": reported, "north": reported})
    north = federation_status(kit).sites[0]
    assert (north.flareclust, north.certificate_end) == ("", None)
    assert north.nvflare == ""


@pytest.mark.parametrize("end", [float("nan"), float("inf"), -1, 1e300, "x", True])
def test_nothing_that_a_site_reports_disturbs_a_terminal_or_the_command(kit, server, monkeypatch, capsys, end):
    reported = {"version": "\x1b[31m" + "9" * 10_000, "flareclust": ["\x07", "[bold]"], "certificate_end": end}
    reported["free_disk"] = end
    monkeypatch.setattr(server, "report_version", lambda target_type: {"south": reported})
    assert call("status", "--kit", kit) == 1
    out = capsys.readouterr().out
    assert "\x1b[31m9" not in out
    assert "\x07" not in out
    assert len(out) < 5_000
    assert call("status", "--kit", kit, "--json") == 1
    assert json.loads(capsys.readouterr().out)["sites"][1]["certificate_end"] is None
    assert status.federation_status(kit).sites[1].free_disk is None


def test_a_folder_that_is_no_kit_is_named(tmp_path):
    with pytest.raises(UserError, match="no kit of a lead"):
        federation_status(tmp_path)


def test_the_command_ends_with_1_where_a_site_is_missing(kit, server, capsys):
    asked = "status", "--kit", kit
    assert call(*asked) == 1
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in (
        "west missing",
        "north connected",
        "j2: south: not authorized",
        "start it (startup/start.sh",
        "hint: ",
    ):
        assert words in out
    assert call(*asked, "--expect-sites", "north, south") == 0
    capsys.readouterr()
    assert call(*asked, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["missing"] == ["west"]
    assert printed["jobs"][0]["refusals"] == ["south: not authorized"]
    assert call(*asked, "--prometheus") == 1
    assert capsys.readouterr().out.startswith("# HELP flareclust_")
    for two in (("--json", "--prometheus"), ("--json", "--html", "page.html")):
        assert call(*asked, *two) == 2
        assert "either" in capsys.readouterr().err


def test_the_page_replaces_the_old_one_as_a_whole_and_others_can_read_it(kit, server, tmp_path, capsys):
    server.listed[0]["name"] = "<script>alert(1)</script>"
    page = tmp_path / "web" / "federation.html"
    page.parent.mkdir()
    asked = "status", "--kit", kit, "--html", page
    old = os.umask(0o022)
    try:
        assert call(*asked) == 1
    finally:
        os.umask(old)
    assert capsys.readouterr().out == ""
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert page.stat().st_mode & 0o777 == 0o644
    assert call(*asked, "--expect-sites", "north") == 0
    assert page.read_text(encoding="utf-8") != text
    assert list(page.parent.iterdir()) == [page]
    assert call("status", "--kit", kit, "--html", tmp_path / "none" / "page.html") == 2
    assert "page.html cannot be written: No such file or directory" in capsys.readouterr().err


def test_of_a_server_that_does_not_answer_the_page_says_that(kit, server, tmp_path, monkeypatch, capsys):
    def refuse(kit):
        raise UserError(f"the kit {kit} has a certificate that ended")

    monkeypatch.setattr(job_monitor, "open_session", refuse)
    page = tmp_path / "federation.html"
    assert call("status", "--kit", kit, "--html", page) == 2
    assert f"the kit {kit} has a certificate" in capsys.readouterr().err
    assert "the kit KIT has a certificate that ended" in page.read_text(encoding="utf-8")
    assert str(kit) not in page.read_text(encoding="utf-8")


def test_metrics_are_in_prometheus_format(kit, server):
    server.listed[0]["name"] = 'a "job"\\'
    text = prometheus_text(federation_status(kit))
    assert 'flareclust_site_connected{site="west"} 0\n' in text
    assert 'flareclust_site_connected{site="north"} 1\n' in text
    assert 'flareclust_site_expected{site="south"} 0\n' in text
    assert 'flareclust_last_job_completed{job="a \\"job\\"\\\\"} 1\n' in text
    assert 'flareclust_last_job_refusals{job="a \\"job\\"\\\\"} 1\n' in text
    assert 'flareclust_site_versions{site="south",nvflare="2.9.1",flareclust="0.1.0"} 1\n' in text
    assert f'flareclust_certificate_end_seconds{{of="north"}} {ENDS:.0f}\n' in text
    assert 'flareclust_certificate_end_seconds{of="server"} ' in text
    assert 'flareclust_site_free_disk_bytes{site="north"} 5000000000\n' in text
    assert 'flareclust_site_budget_left_ratio{site="north"} 0.75\n' in text
    label = r'[a-z]+="(\\.|[^"\\])*"'
    value = re.compile(rf"[a-z_]+(\{{{label}(,{label})*\}})? [0-9.e+-]+")
    lines = text.splitlines()
    assert all(line.startswith("# ") or value.fullmatch(line) for line in lines), text
    named = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(named) == len(set(named))


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_there_are_and_show_all(kit, server):
    known = set(re.findall(r"# TYPE (\w+)", prometheus_text(federation_status(kit))))
    board = json.loads((ROOT / "examples" / "monitoring" / "grafana.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert {name for text in shown for name in re.findall(r"flareclust_\w+", text)} == known
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    rules = re.findall(r"expr: (.*)", (ROOT / "docs" / "monitoring.md").read_text())
    assert rules
    assert {name for text in rules for name in re.findall(r"flareclust_\w+", text)} <= known
