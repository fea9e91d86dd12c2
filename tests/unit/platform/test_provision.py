"""Kits that NVFlare provisions with our Builder: classes, rights, policy, and what a project file can change."""

import json

import pytest
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST

from flareclust.platform.provision import SiteDefaults
from flareclust.privacy.policy import Policy
from flareclust.sites.class_list import of_server, of_sites
from flareclust.sites.kit import code_from
from flareclust.sites.permissions import KitFiles
from flareclust.sites.policy_file import policy_of
from flareclust.sites.running import unguarded_scripts
from tests.unit.platform.provision_cases import (
    OURS,
    SITES,
    allowed,
    changed,
    component,
    provisioned,
    provisioned_with,
    resources,
    rights,
)


def test_the_project_file_makes_kits_for_server_sites_lead_and_admin(kits):
    names = {"localhost", *SITES, "lead@hub.org", "admin@hub.org"}
    assert {path.name for path in kits.iterdir()} == names
    for name in names:
        assert (kits / name / "startup" / "rootCA.pem").is_file()


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_every_kit_lists_the_classes_of_our_jobs_one_by_one_and_no_others(kits, name):
    allowed = resources(kits / name)["class_allow_list"]
    assert allowed == list(of_server() if name == "localhost" else of_sites())
    assert resources(kits / name)["class_list_enforcement_mode"] == "enforce"


@pytest.mark.slow
def test_the_project_file_can_add_the_classes_of_nvflare(tmp_path):
    kits = provisioned_with(tmp_path, nvflare_classes=True)
    assert resources(kits / "clinic-a")["class_allow_list"] == [*DEFAULT_CLASS_ALLOW_LIST, *of_sites()]


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_no_role_may_bring_code_who_sees_sites_sees_versions_and_other_rights_are_those_that_nvflare_gives(
    kits, plain_kits, name
):
    found, given = allowed(rights(kits / name)), allowed(rights(plain_kits / name))
    code = {one for one in given if one[1] == "byoc"}
    assert {user for user, _, _ in code} == {"lead@a", "lead@b", "project_admin@a", "project_admin@b"}
    views = {(user, "report_version", whose) for user, right, whose in given if right == "check_status"}
    assert {user for user, _, _ in views - given} == {
        f"{role}@{o}" for role in ("lead", "org_admin", "member") for o in "ab"
    }
    assert found == given - code | views
    assert {right["byoc"] for right in rights(kits / name)["permissions"].values()} == {"none"}


@pytest.mark.parametrize("name", SITES)
def test_a_site_keeps_its_error_texts_and_starts_jobs_with_our_launcher(kits, name):
    found = resources(kits / name)
    assert found["allow_log_streaming"] is False
    assert component(found, "process_launcher")["path"] == "flareclust.launcher.SiteProcessLauncher"


def test_relays_have_encrypted_connections_on_both_sides_unless_the_project_file_says_otherwise(tmp_path):
    chosen = {"relay-a": {}, "relay-b": {"connection_security": "tls"}}

    def add(project):
        for number, (name, said) in enumerate(chosen.items()):
            listening = {"default_host": "localhost", "port": 18103 + number, **said}
            project["participants"].append({"name": name, "type": "relay", "org": "hub", "listening_host": listening})
            project["participants"][1 + number]["connect_to"] = {"name": name}

    kits = provisioned(changed(tmp_path, add), tmp_path / "made")[0]
    for relay, site, expected in (("relay-a", "clinic-a", "mtls"), ("relay-b", "clinic-b", "tls")):
        listens = resources(kits / relay, "comm_config.json")["internal"]["resources"]
        assert listens["connection_security"] == expected
        assert resources(kits / site, "relay__resources.json")["relay_config"]["connection_security"] == expected
        connects = json.loads((kits / relay / "startup" / "fed_relay.json").read_text())["connect_to"]
        assert connects["connection_security"] == "mtls"
        assert "-m flareclust.guarded nvflare" in (kits / relay / "startup" / "sub_start.sh").read_text()
        assert unguarded_scripts(kits / relay) == []
    assert not (kits / "clinic-c" / "local" / "relay__resources.json").exists()
    assert "-m flareclust.guarded nvflare" in (kits / "lead@hub.org" / "startup" / "fl_admin.sh").read_text()


def test_sites_have_the_recommended_policy_and_the_server_none(kits):
    """The protection that a site has without doing anything; who wants another says so."""
    for name in SITES:
        assert policy_of(kits / name / "local") == Policy()
        assert "policy" not in " ".join(KitFiles(kits / name / "local").hints())
    assert not (kits / "localhost" / "local" / "privacy.json").exists()


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        (False, None),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (({"min_count": 5}, Policy(min_count=5)), (True, Policy()))
        ),
    ],
)
def test_the_project_file_can_say_another_policy_or_none(tmp_path, said, policy):
    assert policy_of(provisioned_with(tmp_path, policy=said) / "clinic-a" / "local") == policy


def test_arguments_in_the_project_file_are_used_and_a_participant_may_differ(tmp_path):
    def change(project):
        ours = next(builder for builder in project["builders"] if builder["path"] == OURS)
        ours["args"] = {"heart_beat_timeout": 240, "outcome_wait": 7, "allow_log_streaming": False, "byoc": True}
        project["participants"][1]["allow_log_streaming"] = True

    kits, _ = provisioned(changed(tmp_path, change), tmp_path / "made")
    server = resources(kits / "localhost")
    assert server["servers"][0]["heart_beat_timeout"] == 240
    assert component(server, "outcome_wait")["args"] == {"seconds": 7}
    assert [resources(kits / site)["allow_log_streaming"] for site in SITES] == [True, False, False]
    for name in ("localhost", *SITES):
        assert code_from(rights(kits / name)["permissions"]) == {"project_admin": "any", "lead": "any"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"heart_beat_timeout": 0},
        {"outcome_wait": "long"},
        {"outcome_wait": True},
        {"allow_log_streaming": "no"},
        {"byoc": "lead"},
        {"policy": "yes"},
        {"nvflare_classes": "all"},
        {"plugins": "stacked"},
    ],
)
def test_arguments_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=f"SiteDefaults: expected .* as {next(iter(wrong))}"):
        SiteDefaults(**wrong)


def test_rights_by_name_leave_out_the_other_users_of_a_role(kits):
    policy = rights(kits / "localhost")
    before = {(right, submitter) for user, right, submitter in allowed(policy) if user == "lead@a"}
    lead = policy["permissions"]["lead"]
    policy["permissions"]["lead"] = {r: ["n:lead@a"] if to in ("any", "o:site") else to for r, to in lead.items()}
    named = allowed(policy)
    assert {(right, submitter) for user, right, submitter in named if user == "lead@a"} == before
    assert {right for user, right, submitter in named if user == "lead@b" and submitter == "lead@a"} == set()
    assert ("lead@b", "submit_job", "lead@b") not in named
