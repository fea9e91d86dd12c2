"""Kits made without our Builder are brought to what it makes, and a site's own choices are kept."""

import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.platform.kit import Settings, _all_rights, prepare_site
from flareclust.sites.kit import code_from, with_code, with_versions, without_code
from flareclust.sites.permissions import KitFiles
from tests.unit.platform.provision_cases import SITES, allowed, component, resources, rights


def allow(kit, *words):
    with pytest.raises(SystemExit) as ended:
        main(["site", "allow", str(kit), *words])
    return ended.value.code


def test_an_existing_kit_is_brought_to_what_the_builder_makes(plain, kits, capsys):
    for name in ("localhost", *SITES):
        assert resources(plain / name) != resources(kits / name)
        assert allow(plain / name) == 0
        assert resources(plain / name) == resources(kits / name)
        assert rights(plain / name) == rights(kits / name)
    printed = capsys.readouterr().out
    assert str(plain / "localhost" / "local" / "resources.json.default") in printed
    assert "jobs that are in /tmp/nvflare/jobs-storage stay there" in printed
    assert "allow_log_streaming: false" in printed
    assert printed.count("byoc: no code in jobs, from project_admin (any), lead (any) until now") == 4
    assert printed.count("report_version: who may see sites may see their versions (authorization.json.default)") == 4


def test_code_in_jobs_can_be_asked_for_and_is_then_for_those_who_submit_jobs(kits, tmp_path, capsys):
    kit = Path(shutil.copytree(kits / "clinic-a", tmp_path / "clinic-a"))
    assert KitFiles(kit / "local").hints() == []
    before = allowed(rights(kit))
    assert allow(kit, "--byoc") == 0
    assert "byoc: code in jobs from project_admin (any), lead (any)" in capsys.readouterr().out
    added = allowed(rights(kit)) - before
    assert {(user, right) for user, right, _ in added} == {
        (f"{role}@{org}", "byoc") for role in ("lead", "project_admin") for org in ("a", "b")
    }
    (hint,) = KitFiles(kit / "local").hints()
    assert hint.startswith("jobs may bring code from project_admin (any), lead (any)")
    assert hint.endswith("flareclust site allow")


def test_a_sites_own_rights_are_kept_and_reported(plain, capsys):
    kit = plain / "clinic-a"
    own = kit / "local" / "authorization.json"
    own.write_text(json.dumps({"format_version": "1.0", "permissions": {"lead": {"byoc": ["o:site", "n:x"]}}}))
    before = own.read_bytes(), rights(kit)
    for words in ((), ("--byoc",)):
        assert allow(kit, *words) == 0
        printed = capsys.readouterr().out
        assert "kept: byoc in authorization.json: code in jobs from lead (o:site, n:x)" in printed
        assert "until now" not in printed
    assert (own.read_bytes(), rights(kit)) == before
    assert any('"byoc": "none" there' in hint for hint in KitFiles(kit / "local").hints())


def identity(kit, *words):
    with pytest.raises(SystemExit) as ended:
        main(["site", "identity", str(kit), *words])
    return ended.value.code


def test_a_site_gets_an_identity_of_its_own_once_and_a_server_none(plain, capsys):
    kit = plain / "clinic-a"
    assert identity(kit) == 0
    assert capsys.readouterr().out == "none\n"
    assert identity(kit, "--renew") == 2
    assert "`flareclust site allow KIT` makes one" in capsys.readouterr().err
    assert allow(kit) == 0
    (own,) = re.findall(r"identity for secure sums: (SHA256:\S{43})\n", capsys.readouterr().out)
    assert allow(kit) == 0
    assert f"identity for secure sums: {own}\n" in capsys.readouterr().out
    assert allow(plain / "localhost") == 0
    assert "identity for" not in capsys.readouterr().out
    assert not (plain / "localhost" / "local" / "secure_identity.pem").exists()


def test_an_identity_is_renewed_in_two_steps(plain, capsys):
    kit = plain / "clinic-a"
    allow(kit)
    capsys.readouterr()
    assert identity(kit) == 0
    old = capsys.readouterr().out.strip()
    assert identity(kit, "--renew", "--retire") == 2
    assert "stand alone" in capsys.readouterr().err
    assert identity(kit, "--renew") == 0
    (following,) = re.findall(
        rf"^{re.escape(old)} \(old\), (SHA256:\S+) \(next\)$", capsys.readouterr().out, re.MULTILINE
    )
    assert identity(kit, "--retire") == 0
    assert capsys.readouterr().out.strip() == following != old


@pytest.mark.parametrize(
    ("given", "code", "closed"),
    [
        ("o:site", "o:site", {"submit_job": "o:site", "byoc": "none"}),
        (["n:x", "n:y"], "n:x, n:y", {"submit_job": ["n:x", "n:y"], "byoc": "none"}),
        ({"*": "any", "byoc": "none"}, "any", {"submit_job": "any", "byoc": "none"}),
        ({"BYOC": "any", "view": "any"}, "any", {"view": "any", "byoc": "none"}),
    ],
)
def test_rights_in_other_words_are_understood_as_nvflare_does(given, code, closed):
    """One expression for all, beside which NVFlare heeds no exception, and names in other cases."""
    assert code_from({"lead": given}) == {"lead": code}
    found = without_code({"lead": given}, _all_rights())["lead"]
    assert code_from({"lead": found}) == {}
    assert found | closed == found
    everybody = {"format_version": "1.0", "permissions": {"lead": found}}
    assert not [one for one in allowed(everybody) if one[1] == "byoc"]


def test_code_is_for_nobody_who_may_not_submit_a_job():
    given = {"lead": {"submit_job": "o:site"}, "member": {"view": "any"}, "guest": "none"}
    assert with_code(given, _all_rights()) == given | {"lead": {"submit_job": "o:site", "byoc": "o:site"}}
    assert without_code(given, _all_rights())["guest"] == "none"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"view": "o:site"}, {"view": "o:site", "report_version": "o:site"}),
        ({"View": "any", "REPORT_VERSION": "none"}, {"View": "any", "REPORT_VERSION": "none"}),
        ({"*": "any", "view": "none"}, {"*": "any", "view": "none"}),
        ({"submit_job": "any"}, {"submit_job": "any"}),
        ("any", "any"),
    ],
)
def test_who_may_see_sites_may_see_their_versions_unless_the_kit_says_otherwise(given, found):
    assert with_versions({"lead": given}) == {"lead": found}


def test_allowing_twice_changes_nothing_and_says_so(plain, capsys):
    kit = plain / "localhost"
    allow(kit)
    file = kit / "local" / "resources.json.default"
    before = file.stat().st_mtime_ns, file.read_bytes()
    capsys.readouterr()
    assert allow(kit) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before


def test_a_sites_own_file_goes_first_and_its_own_choices_are_kept(plain):
    local = plain / "localhost" / "local"
    own = resources(plain / "localhost")
    own["site_policy"] = {"anything": [1, 2]}
    own["servers"][0]["heart_beat_timeout"] = 90
    component(own, "job_manager")["args"]["uri_root"] = "/srv/jobs"
    (local / "resources.json").write_text(json.dumps(own))
    os.chmod(local / "resources.json", 0o640)
    default = (local / "resources.json.default").read_bytes()
    file, changes = prepare_site(local)
    assert file == local / "resources.json"
    assert (local / "resources.json.default").read_bytes() == default
    found = resources(plain / "localhost", "resources.json")
    assert found["site_policy"] == {"anything": [1, 2]}
    assert found["servers"][0]["heart_beat_timeout"] == 90
    assert component(found, "job_manager")["args"]["uri_root"] == "/srv/jobs"
    assert component(found, "job_store")["path"].startswith("nvflare.")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not [change for change in changes if change.startswith(("heart_beat", "job_store"))]
    assert sorted(path.name for path in local.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("name", ["localhost", "clinic-a"])
def test_a_kit_with_nvflares_launcher_is_hinted_at_and_one_with_more_variables_keeps_them(plain, name):
    def hinted() -> bool:
        return any("get all environment variables" in hint for hint in KitFiles(plain / name / "local").hints())

    assert hinted()
    assert allow(plain / name) == 0
    assert not hinted()
    own = resources(plain / name)
    component(own, "process_launcher")["args"] = {"environment": ["KRB5CCNAME"]}
    (plain / name / "local" / "resources.json.default").write_text(json.dumps(own))
    assert allow(plain / name) == 0
    assert resources(plain / name) == own


def test_a_sites_own_launcher_is_kept(plain):
    local = plain / "clinic-a" / "local"
    own = resources(plain / "clinic-a")
    component(own, "process_launcher")["path"] = "nvflare.app_opt.job_launcher.docker_launcher.ClientDockerJobLauncher"
    (local / "resources.json.default").write_text(json.dumps(own))
    prepare_site(local, Settings(allow_log_streaming=None))
    found = resources(plain / "clinic-a")
    assert component(found, "process_launcher") == component(own, "process_launcher")
    assert found["allow_log_streaming"] is True


def test_log_streaming_in_a_sites_own_file_is_its_choice(plain, capsys):
    kit = plain / "clinic-a"
    shutil.copy(kit / "local" / "resources.json.default", kit / "local" / "resources.json")
    assert resources(kit, "resources.json")["allow_log_streaming"] is True
    assert allow(kit) == 0
    assert resources(kit, "resources.json")["allow_log_streaming"] is True
    assert "kept: allow_log_streaming: true in resources.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "words", "then"), [(False, (), False), (None, (), False), (False, ("--log-streaming",), True)]
)
@pytest.mark.parametrize("name", ["resources.json", "resources.json.default"])
def test_log_streaming_that_a_file_does_not_choose_is_set(plain, name, said, words, then):
    kit = plain / "clinic-a"
    own = resources(kit) | {"allow_log_streaming": said}
    if said is None:  # NVFlare then streams
        del own["allow_log_streaming"]
    (kit / "local" / name).write_text(json.dumps(own))
    assert allow(kit, *words) == 0
    assert resources(kit, name)["allow_log_streaming"] is then


@pytest.mark.parametrize("text", ["{", '{"permissions": []}'])
def test_broken_rights_are_named_and_nothing_is_changed(plain, text):
    local = plain / "clinic-a" / "local"
    (local / "authorization.json.default").write_text(text)
    before = resources(plain / "clinic-a")
    with pytest.raises(UserError, match=r"authorization\.json\.default"):
        prepare_site(local)
    assert resources(plain / "clinic-a") == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "expected a JSON object"),
        ('{"class_allow_list": "nvflare."}', "class_allow_list"),
        ('{"components": {}}', "components"),
        ('{"servers": {}}', "servers"),
    ],
)
def test_a_broken_file_is_named_and_left_alone(plain, text, reason):
    file = plain / "clinic-a" / "local" / "resources.json"
    file.write_text(text)
    with pytest.raises(UserError, match=reason) as refused:
        prepare_site(file.parent)
    assert str(file) in str(refused.value)
    assert file.read_text() == text


def test_a_kit_without_the_file_says_what_was_expected(tmp_path):
    with pytest.raises(UserError, match=r"neither resources.json nor resources.json.default"):
        prepare_site(tmp_path)
