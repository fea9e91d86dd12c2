"""What sites say of their policies, by whose will, and what a lead sees of answers that are not what they should be."""

import json
from types import SimpleNamespace

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError
from nvflare.private.admin_defs import Message

from flareclust._foundation.errors import UserError
from flareclust.platform import job_monitor
from flareclust.platform.peers import _add_own
from flareclust.platform.status import federation_rules
from flareclust.privacy.policy import DifferentialPrivacy, Policy, summary
from flareclust.sites import account
from flareclust.sites.policy_file import PRIVACY, SHARED, shared_rules, write_policy
from tests.command_line import call
from tests.fake_server import FakeServer

DP = DifferentialPrivacy(bounds={"crp": (0.0, 500.0)}, epsilon=1.0, delta=1e-5, budget=3.0)


def answer(kit):
    """The answer of a site with this kit to the question about versions."""
    reply = Message("sys.report_version", json.dumps({"version": "2.9.0"}))
    return json.loads(_add_own(reply, SimpleNamespace(args=SimpleNamespace(workspace=str(kit)))).body)


@pytest.fixture
def server(monkeypatch):
    server = FakeServer(["RUNNING"])
    server.sites, server.said = ["north", "south"], {}
    monkeypatch.setattr(server, "report_version", lambda target: server.said, raising=False)
    monkeypatch.setattr(job_monitor, "open_session", server.session)
    return server


def test_a_site_says_nothing_without_a_policy_that_allows_it(tmp_path):
    assert "rules" not in answer(tmp_path)
    write_policy(tmp_path / "local", Policy(min_count=20))
    assert "rules" not in answer(tmp_path)
    write_policy(tmp_path / "local", Policy(min_count=20, share_rules=True))
    assert answer(tmp_path)["rules"]["min_count"] == 20


@pytest.mark.parametrize(
    ("policy", "rows"),
    [({"min_count": 20}, 20), ({"min_count": 20, "min_rows": 50}, 50), ({"min_count": 20, "min_rows": 5, "dp": DP}, 5)],
)
def test_a_lead_sees_the_fewest_rows_that_the_sites_own_command_says(tmp_path, policy, rows):
    policy = Policy(share_rules=True, **policy)
    write_policy(tmp_path / "local", policy)
    assert shared_rules(tmp_path / "local")["min_rows"] == rows
    assert summary(policy)["rows"] == f"takes part with {rows} or more"


def test_bounds_names_and_fingerprints_stay_at_the_site(tmp_path):
    pins = {"a": ("SHA256:" + "A" * 43,)}
    names = {"secure_sites": ("a", "b", "c"), "secure_identities": pins, "arrays": ("centroids",)}
    write_policy(tmp_path / "local", Policy(share_rules=True, dp=DP, **names))
    said = shared_rules(tmp_path / "local")
    assert set(said) <= set(SHARED)
    assert said["epsilon"] == 1.0
    assert not any(word in json.dumps(said) for word in ("crp", "500", "SHA256", '"centroids"', "bounds"))


def test_a_policy_that_cannot_be_read_hides_nothing_else(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / PRIVACY).write_text("{")
    assert set(answer(tmp_path)) == {"version", "flareclust", "free_disk"}


def test_a_private_site_that_shares_its_rules_tells_what_is_spent(tmp_path, monkeypatch):
    write_policy(tmp_path / "local", Policy(share_rules=True, dp=DP))
    assert "spent" not in answer(tmp_path)["rules"], "no rows are named, so there is no account"
    monkeypatch.setattr(account, "budget_of", lambda local: SimpleNamespace(spent=1.5, trouble=trouble))
    trouble = None
    assert (answer(tmp_path)["rules"]["budget"], answer(tmp_path)["rules"]["spent"]) == (3.0, 1.5)
    trouble = "the ledger is from a backup"
    assert "spent" not in answer(tmp_path)["rules"], "no job may spend from it, whatever it says"
    write_policy(tmp_path / "local", Policy(dp=DP))
    assert "rules" not in answer(tmp_path)


def test_a_lead_sees_the_rules_of_the_connected_sites(tmp_path, kit, server, capsys):
    write_policy(tmp_path / "local", Policy(min_count=20, secure_sums=True, share_rules=True))
    server.said = {"server": {}, "north": answer(tmp_path), "south": {"version": "2.9.0"}, "gone": answer(tmp_path)}
    rules = federation_rules(kit)
    assert rules["north"]["min_count"] == 20
    assert rules["south"] is None
    assert set(rules) == {"north", "south"}
    assert call("site", "rules", "--kit", kit) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "min_count" in out
    assert "north 20 20 1 1000 120 yes 3" in out
    assert "unknown: south: no policy, or one that is not shared" in out
    assert call("site", "rules", "--kit", kit, "--json") == 0
    assert json.loads(capsys.readouterr().out) == rules


@pytest.mark.parametrize(
    "said",
    [
        "\x1b[31m",
        ["min_count"],
        {"min_count": "\x1b[2J[bold]"},
        {"min_count": float("nan")},
        {"min_count": 10**400},
        {"min_count": -1},
        {"min_count": {"a": 1}},
        {"\x1b[2J": 1},
        {},
    ],
)
def test_only_numbers_under_known_names_come_from_a_site(kit, server, capsys, said):
    server.said = {"north": {"rules": said}, "south": said}
    assert federation_rules(kit) == {"north": None, "south": None}
    assert call("site", "rules", "--kit", kit) == 0
    assert "\x1b[2J" not in capsys.readouterr().out


def test_a_user_who_may_not_ask_is_told_so(kit, server, monkeypatch):
    def refuse(target):
        raise AuthorizationError("no")

    monkeypatch.setattr(server, "report_version", refuse)
    with pytest.raises(UserError, match="does not permit"):
        federation_rules(kit)
