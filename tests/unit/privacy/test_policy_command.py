"""The file of a site's policy as NVFlare reads it, and the command that writes it."""

import json
import re
from io import StringIO
from unittest.mock import MagicMock

import pytest
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from flareclust._foundation.errors import UserError
from flareclust.cli import site_policy
from flareclust.cli.main import main
from flareclust.platform import file_guard
from flareclust.platform.filters import SiteResultPolicy, SiteTaskPolicy
from flareclust.privacy.policy import Policy
from flareclust.sites.check import check
from flareclust.sites.permissions import KitFiles
from flareclust.sites.policy_file import PRIVACY, policy_of, remove_policy, scopes_of, write_policy
from tests.paths import ROOT
from tests.unit.privacy.policy_cases import executor, refusal

FOREIGN = {"path": "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy", "args": {"gamma": 0.1}}


# ---- the file ----


@pytest.mark.parametrize(
    "spoil", ["task_data_filters", "task_result_filters", "components", "args", "direction", "scope"]
)
def test_a_file_that_does_not_impose_one_policy_on_all_jobs_is_reported_and_stops_them(kit, ask, spoil):
    ask(executor())
    file = write_policy(kit / "local", Policy())
    said = json.loads(file.read_text())
    scope = said["scopes"][0]
    if spoil == "components":
        said["components"] = []
    elif spoil == "args":
        scope["task_result_filters"][0]["args"]["min_count"] = 1
    elif spoil == "direction":
        scope["task_result_filters"][0]["direction"] = "in"
    elif spoil == "scope":
        said["scopes"].append({"name": "lenient"})
    else:
        scope[spoil] = []
    file.write_text(json.dumps(said))
    with pytest.raises(UserError, match="flareclust site policy KIT --remove"):
        policy_of(kit / "local")
    assert KitFiles(kit / "local").facts()["policy"] == "broken"
    (error,) = KitFiles(kit / "local").problems("north")
    assert error.startswith(f"north has a policy that no job can be held to: {file}")
    assert "does not impose one policy" in refusal(ask(executor()))


def test_filters_and_scopes_of_the_operator_stay(kit):
    file = kit / "local" / PRIVACY
    scopes = [{"name": "a", "task_result_filters": [FOREIGN]}, {"name": "b", "properties": {"x": 1}}]
    own = {"scopes": scopes, "default_scope": "b", "components": [{"id": "mine", "path": "x.Y"}]}
    file.write_text(json.dumps(own))
    write_policy(kit / "local", Policy(min_count=7))
    write_policy(kit / "local", Policy(min_count=8))
    assert policy_of(kit / "local") == Policy(min_count=8)
    assert scopes_of(kit / "local").other_filters == [FOREIGN["path"]]
    assert any("the scopes a, b" in hint for hint in KitFiles(kit / "local").hints())
    assert remove_policy(kit / "local")
    after = json.loads(file.read_text())
    assert after["components"] == own["components"]
    assert [scope["name"] for scope in after["scopes"]] == ["a", "b"]
    assert after["scopes"][0]["task_result_filters"] == [FOREIGN]
    assert policy_of(kit / "local") is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"scopes": 3}', '{"scopes": [{"task_data_filters": 1}]}', '{"components": 1}']
)
def test_a_file_that_nvflare_could_not_read_is_left_alone(kit, text):
    (kit / "local" / PRIVACY).write_text(text)
    with pytest.raises(UserError, match=PRIVACY):
        write_policy(kit / "local", Policy())
    assert (kit / "local" / PRIVACY).read_text() == text


def test_the_file_goes_with_the_policy_where_nothing_else_is_in_it(kit):
    write_policy(kit / "local", Policy())
    assert remove_policy(kit / "local")
    assert not (kit / "local" / PRIVACY).exists()
    assert not remove_policy(kit / "local")


def call(*arguments):
    with pytest.raises(SystemExit) as done:
        main(["site", "policy", *map(str, arguments)])
    return done.value.code or 0


# ---- the command ----


def test_the_command_writes_changes_shows_and_removes(kit, capsys):
    assert call(kit) == 0
    assert policy_of(kit / "local") == Policy()
    assert call(kit, "--min-count", 20, "--arrays", "centroids, counts", "--secure-sums", "--yes") == 0
    assert call(kit, "--round-counts", 5, "--no-secure-sums") == 0
    changed = Policy(min_count=20, round_counts=5, arrays=("centroids", "counts"))
    assert policy_of(kit / "local") == changed
    assert call(kit) == 0, "a policy that is there stays"
    capsys.readouterr()
    assert call(kit, "--show") == 0
    shown = capsys.readouterr().out
    assert "of fewer than 20 rows are left out" in shown
    assert "multiples of 5" in shown
    assert policy_of(kit / "local") == changed
    (kit / "policy.yaml").write_text("min_count: 12\nround_counts: 4\n")
    assert call(kit, kit / "policy.yaml", "--min-rows", 30, "--yes") == 0
    assert policy_of(kit / "local") == Policy(min_rows=30, min_count=12, round_counts=4)
    assert call(kit, "--remove") == 0
    assert policy_of(kit / "local") is None


@pytest.fixture
def answers(monkeypatch):
    """What somebody at a terminal types."""

    def at_terminal(text):
        typed = StringIO(text)
        monkeypatch.setattr(typed, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", typed)

    return at_terminal


@pytest.mark.parametrize("now", [11, 9])
def test_a_change_of_the_floor_is_asked_about(kit, capsys, answers, now):
    assert call(kit) == 0
    answers("n\n")
    assert call(kit, "--min-count", now) == 1
    assert f"min_count changes from 10 to {now}, so jobs will see other groups" in capsys.readouterr().out
    assert policy_of(kit / "local") == Policy()
    answers("y\n")
    assert call(kit, "--min-count", now) == 0
    assert policy_of(kit / "local") == Policy(min_count=now)


def test_a_floor_in_a_file_is_asked_about_as_well(kit, capsys, answers):
    assert call(kit) == 0
    (kit / "policy.yaml").write_text("min_count: 12\n")
    answers("\n")
    assert call(kit, kit / "policy.yaml") == 1, "no is the default"
    assert policy_of(kit / "local") == Policy()
    assert call(kit, kit / "policy.yaml", "--yes") == 0
    assert policy_of(kit / "local") == Policy(min_count=12)


def test_without_a_terminal_a_change_of_the_floor_needs_yes(kit, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    assert call(kit, "--min-count", 20) == 0, "a first policy has no other groups"
    assert call(kit, "--min-count", 30) == 2
    assert "Nobody can be asked here: give --yes to change it" in capsys.readouterr().err
    assert policy_of(kit / "local") == Policy(min_count=20)
    assert call(kit, "--min-count", 30, "--yes") == 0
    assert policy_of(kit / "local") == Policy(min_count=30)


def test_what_makes_no_other_groups_is_not_asked_about(kit, capsys):
    assert call(kit, "--min-count", 1) == 0
    assert call(kit, "--min-count", 3, "--min-rows", 20) == 0, "a group has three rows or more, whatever the floor"
    assert call(kit, "--round-counts", 5) == 0
    assert "other groups" not in capsys.readouterr().out


def test_the_question_has_the_figures_of_the_documentation():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    said = " ".join(site_policy._OTHER_GROUPS.split())
    for floors, words in (
        ("10 and 11", "with floors 10 and 11, {} of 1,797 rows"),
        ("10 and 20", "with 10 and 20, {}."),
    ):
        [rows] = re.findall(rf"^\| digits, 1,797 rows \| {floors} \|.*\| (\d+) \|$", page, re.MULTILINE)
        assert words.format(rows) in said


def test_the_command_says_what_was_spent(kit, capsys):
    assert call(kit, "--epsilon", 1, "--delta", 1e-6, "--budget", 5, "--bounds", "0,10") == 0
    assert "spent: epsilon 0 of 5 in 0 jobs" in capsys.readouterr().out
    assert policy_of(kit / "local").dp.bounds == (0.0, 10.0)
    assert call(kit, "--colluding", 4) == 0
    assert policy_of(kit / "local").dp.colluding == 4
    assert "at least 4 sites may collude" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--min-count", "0"], "min_count"),
        (["--epsilon", "1"], "needs bounds, delta, budget"),
        (["--bounds", "low"], "two numbers with a comma"),
        (["--show", "--remove"], "stand alone"),
        (["--remove", "--min-count", "3"], "stand alone"),
        (["missing.yaml"], "cannot be read"),
    ],
)
def test_what_the_command_cannot_do_it_says_and_leaves_the_site_as_it_is(kit, capsys, arguments, words):
    assert call(kit, *arguments) == 2
    assert words in capsys.readouterr().err
    assert policy_of(kit / "local") is None


def test_site_check_shows_the_policy_and_hints_where_there_is_none(kit):
    (kit / "local" / "resources.json").write_text("{}")
    assert check(kit).facts["policy"] == "none"
    assert any("flareclust site policy" in hint for hint in check(kit).hints)
    write_policy(kit / "local", Policy())
    checked = check(kit)
    assert checked.facts["policy"] == "clusters of fewer than 10 rows are left out; numbers of rows exact"
    assert not any("policy" in hint for hint in checked.hints)


def test_filters_take_what_the_file_has_as_their_arguments():
    said = Policy(min_count=4).to_json()
    assert SiteTaskPolicy(**said).policy == SiteResultPolicy(**said).policy == Policy(min_count=4)


def test_a_policy_refuses_every_task_where_messages_could_hold_files(monkeypatch, tmp_path):
    task, fl_ctx = DXO(DataKind.WEIGHTS, data={}).to_shareable(), FLContext()
    fl_ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, MagicMock(), private=True, sticky=False)
    monkeypatch.setattr(file_guard, "problem", lambda: "cannot keep files out")
    assert refusal(SiteTaskPolicy().process(task, fl_ctx)) == "cannot keep files out (its policy)"


def test_site_policy_takes_the_number_and_the_names_of_the_sites_of_a_sum(kit, capsys):
    assert call(kit, "--secure-sums", "--secure-min-sites", 4, "--secure-sites", "a,b, c,d,e") == 0
    names = ("a", "b", "c", "d", "e")
    assert policy_of(kit / "local") == Policy(secure_sums=True, secure_min_sites=4, secure_sites=names)
    assert "masked sums: of at least 4 sites, of a, b, c, d, e only" in capsys.readouterr().out
    assert call(kit, "--show") == 0
    assert "masked sums: of at least 4 sites, of a, b, c, d, e only" in capsys.readouterr().out
    assert (
        KitFiles(kit / "local")
        .facts()["policy"]
        .endswith("sums masked only, of at least 4 sites, of a, b, c, d, e only")
    )
    for wrong, reported in (
        (("--secure-min-sites", 2), "secure_min_sites must be an integer of at least 3, got 2"),
        (("--secure-min-sites", 6), "secure_sites has 5 names where secure_min_sites asks for 6 sites"),
        (("--secure-sites", "a,b,b,c"), "secure_sites must be a list of different names of sites"),
    ):
        assert call(kit, *wrong) == 2
        assert reported in capsys.readouterr().err
    assert policy_of(kit / "local").secure_min_sites == 4


def test_site_policy_pins_identities_site_by_site(kit, capsys):
    a, b, c = (f"SHA256:{letter * 43}" for letter in "abc")
    assert call(kit, "--secure-sites", "north,south,west", "--secure-identities", f"north={a}, south={b}") == 0
    assert policy_of(kit / "local").secure_identities == {"north": (a,), "south": (b,)}
    assert f"of north, south, west only; north is {a}; south is {b}" in capsys.readouterr().out
    assert call(kit, "--secure-identities", f"south={b},south={c}") == 0
    assert policy_of(kit / "local").secure_identities == {"north": (a,), "south": (b, c)}
    assert (
        f"changed: masked sums: of at least 3 sites, of north, south, west only; north is {a}; south is {b} or {c}"
        in (capsys.readouterr().out)
    )
    assert call(kit, "--secure-identities", f"south={c},north=") == 0
    assert policy_of(kit / "local").secure_identities == {"south": (c,)}
    for wrong, reported in (
        ("south", "expected SITE=FINGERPRINT, with commas, or SITE= for a site that is pinned; got 'south'"),
        ("west=", "or SITE= for a site that is pinned; got 'west='"),
        (f"={a}", "expected SITE=FINGERPRINT"),
        ("south=SHA256:abc", "secure_identities must have a list of fingerprints for each site"),
        (f"east={a}", "secure_identities has east, which secure_sites does not name"),
    ):
        assert call(kit, "--secure-identities", wrong) == 2
        assert reported in capsys.readouterr().err
    assert policy_of(kit / "local").secure_identities == {"south": (c,)}
    assert call(kit, "--secure-identities", "south=") == 0
    assert policy_of(kit / "local").secure_identities is None


def test_site_policy_says_when_noise_costs_less_than_groups(kit, capsys):
    rule = "with fewer than 12 rows of a cluster at each of many sites, noise costs less than groups"
    assert call(kit, "--min-count", 12, "--yes") == 0
    assert call(kit, "--show") == 0
    assert rule in capsys.readouterr().out
