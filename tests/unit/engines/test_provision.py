"""Kits that NVFlare provisions with our Builder run our jobs as they come; kits made without it are brought to the same."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.fuel.utils.class_utils import instantiate_class
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer

from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.engines.server import OUTCOME_WAIT
from flareclust.privacy.policy import Policy
from flareclust.provision import SiteDefaults
from flareclust.sites import permissions as site_policy
from flareclust.sites.class_list import of_server, of_sites
from flareclust.sites.kit import Settings, prepare_site
from flareclust.sites.policy_file import policy_of
from flareclust.sites.rights import code_from, with_code, without_code
from tests.paths import ROOT

PROJECT = ROOT / "poc_workspace" / "project.yml"
OURS = "flareclust.provision.SiteDefaults"
SITES = ("clinic-a", "clinic-b", "clinic-c")


def provisioned(project, folder):
    """Provision as an operator does, in an empty folder with an empty home, and return the kits and the text printed."""
    home = folder / "home"
    home.mkdir(parents=True)
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", "kits"]
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=os.environ | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return folder / "kits" / "clinics" / "prod_00", done.stdout + done.stderr


def changed(folder, change):
    """Write a copy of the project file after a change, and return it."""
    project = yaml.safe_load(PROJECT.read_text())
    change(project)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "project.yml"
    file.write_text(yaml.safe_dump(project))
    return file


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return provisioned(PROJECT, tmp_path_factory.mktemp("provisioned"))[0]


@pytest.fixture(scope="module")
def plain_kits(tmp_path_factory):
    """Kits made without our Builder."""
    folder = tmp_path_factory.mktemp("plain")
    file = changed(
        folder, lambda p: p.update(builders=[builder for builder in p["builders"] if builder["path"] != OURS])
    )
    return provisioned(file, folder / "made")[0]


@pytest.fixture
def plain(plain_kits, tmp_path):
    """A copy of those kits to change."""
    return Path(shutil.copytree(plain_kits, tmp_path / "kits"))


def resources(kit, name="resources.json.default"):
    return json.loads((kit / "local" / name).read_text())


def rights(kit):
    return resources(kit, "authorization.json.default")


def allowed(policy):
    """Return whom NVFlare's own evaluator lets do what: (role, right, whose job), at a site of the organisation a."""
    authorizer = FLAuthorizer("a", policy)
    names = {name for key, name in vars(AdminCommandNames).items() if key.isupper()} | set(COMMAND_CATEGORIES)
    names |= {"byoc", "server-predeployed-flwr"}
    people = [Person(f"{role}@{org}", org, role) for role in policy["permissions"] for org in ("a", "b")]
    submitters = [Person(f"lead@{org}", org, "lead") for org in ("a", "b")]
    return {
        (user.name, right, submitter.name)
        for user in people
        for submitter in submitters
        for right in names
        if authorizer.authorize(AuthzContext(right, user, submitter))[0]
    }


def component(found, identity):
    return next(one for one in found["components"] if one["id"] == identity)


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
    file = changed(
        tmp_path, lambda p: next(b for b in p["builders"] if b["path"] == OURS).update(args={"nvflare_classes": True})
    )
    kits = provisioned(file, tmp_path / "made")[0]
    assert resources(kits / "clinic-a")["class_allow_list"] == [*DEFAULT_CLASS_ALLOW_LIST, *of_sites()]


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_no_role_may_bring_code_and_all_other_rights_are_those_that_nvflare_gives(kits, plain_kits, name):
    found, given = allowed(rights(kits / name)), allowed(rights(plain_kits / name))
    code = {one for one in given if one[1] == "byoc"}
    assert {user for user, _, _ in code} == {"lead@a", "lead@b", "project_admin@a", "project_admin@b"}
    assert found == given - code
    assert {right["byoc"] for right in rights(kits / name)["permissions"].values()} == {"none"}


@pytest.mark.parametrize("name", SITES)
def test_a_site_keeps_its_error_texts_and_starts_jobs_with_our_launcher(kits, name):
    found = resources(kits / name)
    assert found["allow_log_streaming"] is False
    assert component(found, "process_launcher")["path"] == "flareclust.launcher.SiteProcessLauncher"


def test_sites_have_the_recommended_policy_and_the_server_none(kits):
    """The protection that a site has without doing anything; who wants another says so."""
    for name in SITES:
        assert policy_of(kits / name / "local") == Policy()
        assert "policy" not in " ".join(site_policy.hints(kits / name / "local"))
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
    file = changed(
        tmp_path, lambda p: next(b for b in p["builders"] if b["path"] == OURS).update(args={"policy": said})
    )
    kits = provisioned(file, tmp_path / "made")[0]
    assert policy_of(kits / "clinic-a" / "local") == policy


def test_the_server_forgets_lost_sites_soon_and_keeps_its_jobs_to_itself(kits):
    text = (kits / "localhost" / "local" / "resources.json.default").read_text()
    found = json.loads(text)
    assert found["servers"][0]["heart_beat_timeout"] == 60
    assert component(found, "outcome_wait")["args"] == {"seconds": 20.0}
    assert "/tmp" not in text
    assert str(kits) not in text


def test_what_the_kits_name_can_be_loaded(kits, monkeypatch, tmp_path):
    monkeypatch.delenv(OUTCOME_WAIT, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("localhost", "clinic-a"):
        for one in resources(kits / name)["components"]:
            if one["path"].startswith("flareclust."):
                instantiate_class(one["path"], one.get("args", {}))
    assert os.environ[OUTCOME_WAIT] == "20.0"


#: NVFlare's server up to where it has read its configuration, in its order (nvflare/private/fed/app/server/server_train.py).
AS_THE_SERVER = """
import argparse, os, sys
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.app.fl_conf import FLServerStarterConfiger
from nvflare.private.fed.server.job_runner import JobRunner

os.chdir(sys.argv[1])
args = argparse.Namespace(workspace=sys.argv[1], job_id=None, fed_server="fed_server.json", set=[])
conf = FLServerStarterConfiger(workspace=Workspace(sys.argv[1]), args=args, kv_list=["secure_train=true", "org=hub"])
conf.configure()
print(JobRunner(workspace_root=sys.argv[1]).client_outcome_wait_timeout, *sorted(conf.components))
"""


def test_a_server_that_reads_the_kit_waits_as_long_as_it_says_wherever_it_lies(kits, tmp_path):
    """Not in the place where it was made, and not started by its script, which a container does not use."""
    moved = shutil.copytree(kits / "localhost", tmp_path / "moved")
    env = {name: value for name, value in os.environ.items() if name != OUTCOME_WAIT}
    done = subprocess.run(
        [sys.executable, "-c", AS_THE_SERVER, str(moved)],
        check=True,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split()[0] == "20.0"
    assert "job_store" in done.stdout
    assert (moved / "jobs-storage").is_dir()


def test_the_operators_own_wait_goes_before_that_of_the_kit(monkeypatch):
    monkeypatch.setenv(OUTCOME_WAIT, "300")
    instantiate_class("flareclust.engines.server.OutcomeWait", {"seconds": 20.0})
    assert os.environ[OUTCOME_WAIT] == "300"


def test_jobs_and_snapshots_lie_in_the_folder_in_which_the_server_was_started(kits, monkeypatch, tmp_path):
    found = resources(kits / "localhost")
    monkeypatch.chdir(tmp_path)
    store = instantiate_class(component(found, "job_store")["path"], {})
    manager = instantiate_class(
        "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", component(found, "job_manager")["args"]
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # what is relative must not move with a later change of folder
    uri = os.path.join(manager.uri_root, "a-job")
    store.create_object(uri, b"the job", {"name": "a-job"})
    assert (tmp_path / "jobs-storage" / "a-job" / "data").read_bytes() == b"the job"
    assert store.list_objects(manager.uri_root) == [uri]
    assert store.get_meta(uri) == {"name": "a-job"}
    # An absolute name means what it does for NVFlare, whose `deploy prepare` and NVFL_JOB_STORE_ROOT give such.
    store.create_object(str(tmp_path / "absolute" / "a-job"), b"", {})
    assert (tmp_path / "absolute" / "a-job").is_dir()
    persistor = found["snapshot_persistor"]["args"]
    for root, expected in (("snapshot-storage", tmp_path / "elsewhere"), (str(tmp_path / "prepared"), tmp_path)):
        args = persistor["storage"]["args"] | {"root_dir": root}
        snapshots = instantiate_class(persistor["storage"]["path"], args)
        snapshots.create_object(os.path.join(persistor["uri_root"], "a-run"), b"", {})
        assert (expected / Path(root).name / "a-run").is_dir()


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


#: A Builder that makes NVFlare sign the kits, as it does for those with homomorphic encryption.
ENCRYPTING = """
from pathlib import Path

from nvflare.lighter.spec import Builder


class Encrypting(Builder):
    def build(self, project, ctx):
        for one in [project.get_server(), *project.get_clients()]:
            (Path(ctx.get_kit_dir(one)) / "client_context.tenseal").write_bytes(b"")
"""


def signed(folder, monkeypatch, builders):
    """Provision with these builders, as a project file lists them, and return the kits and the text printed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "encrypting.py").write_text(ENCRYPTING)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    paths = [path if "." in path else f"nvflare.lighter.impl.{MODULES[path]}.{path}" for path in builders]
    file = changed(folder, lambda project: project.update(builders=[{"path": path} for path in paths]))
    return provisioned(file, folder / "made")


MODULES = {
    "WorkspaceBuilder": "workspace",
    "StaticFileBuilder": "static_file",
    "CertBuilder": "cert",
    "SignatureBuilder": "signature",
}


@pytest.mark.slow
def test_signed_kits_verify_and_no_longer_do_when_they_are_altered(tmp_path, monkeypatch):
    order = ("WorkspaceBuilder", "StaticFileBuilder", OURS, "encrypting.Encrypting", "CertBuilder", "SignatureBuilder")
    kits, text = signed(tmp_path, monkeypatch, order)
    for name in ("localhost", *SITES):
        assert (kits / name / "local" / "signature.json").is_file(), text
        assert verified(kits / name / "local", kits / name)
        assert verified(kits / name / "startup", kits / name)
    (kits / "clinic-a" / "local" / "resources.json.default").write_text("{}")
    assert not verified(kits / "clinic-a" / "local", kits / "clinic-a")


def verified(folder, kit):
    command = [sys.executable, "-m", "nvflare.tool.verify_startup_kits", "-f", str(folder)]
    command += ["-c", str(kit / "startup" / "rootCA.pem")]
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (("WorkspaceBuilder", OURS, "StaticFileBuilder", "CertBuilder"), "must come after StaticFileBuilder"),
        (
            ("WorkspaceBuilder", "StaticFileBuilder", "encrypting.Encrypting", "CertBuilder", "SignatureBuilder", OURS),
            "must come before SignatureBuilder",
        ),
    ],
)
def test_the_builder_in_the_wrong_place_says_where_it_belongs(tmp_path, monkeypatch, order, reason):
    kits, text = signed(tmp_path, monkeypatch, order)
    assert reason in text
    assert not kits.exists()


@pytest.mark.parametrize("runtime", ["docker", pytest.param("k8s", marks=pytest.mark.slow)])
def test_kits_prepared_for_containers_keep_what_the_builder_made(kits, tmp_path, monkeypatch, runtime):
    (tmp_path / "runtime.yaml").write_text(f"runtime: {runtime}\nparent: {{docker_image: flareclust}}\n")
    for name in ("localhost", "clinic-a"):
        command = [sys.executable, "-m", "nvflare.cli", "deploy", "prepare", str(kits / name)]
        command += ["--output", str(tmp_path / name), "--config", str(tmp_path / "runtime.yaml")]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        listed = of_server() if name == "localhost" else of_sites()
        assert resources(tmp_path / name)["class_allow_list"] == list(listed)
    assert component(resources(tmp_path / "clinic-a"), "app_deployer")["path"].startswith("flareclust.")
    assert resources(tmp_path / "clinic-a")["allow_log_streaming"] is False
    server = resources(tmp_path / "localhost")
    assert server["servers"][0]["heart_beat_timeout"] == 60
    assert component(server, "outcome_wait")["args"] == {"seconds": 20.0}
    # NVFlare wrote absolute names into it, which must lead where they say.
    jobs = component(server, "job_manager")["args"]["uri_root"]
    monkeypatch.chdir(tmp_path)
    store = instantiate_class(component(server, "job_store")["path"], {})
    assert store._object_path(jobs) == os.path.realpath(jobs)
    snapshots = server["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]
    assert Path(snapshots).parent == Path(jobs).parent


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


def test_code_in_jobs_can_be_asked_for_and_is_then_for_those_who_submit_jobs(kits, tmp_path, capsys):
    kit = Path(shutil.copytree(kits / "clinic-a", tmp_path / "clinic-a"))
    assert site_policy.hints(kit / "local") == []
    before = allowed(rights(kit))
    assert allow(kit, "--byoc") == 0
    assert "byoc: code in jobs from project_admin (any), lead (any)" in capsys.readouterr().out
    added = allowed(rights(kit)) - before
    assert {(user, right) for user, right, _ in added} == {
        (f"{role}@{org}", "byoc") for role in ("lead", "project_admin") for org in ("a", "b")
    }
    (hint,) = site_policy.hints(kit / "local")
    assert hint.startswith("jobs may bring code from project_admin (any), lead (any)")
    assert hint.endswith("flareclust site allow")


def test_a_sites_own_rights_are_kept_and_told(plain, capsys):
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
    assert any('"byoc": "none" there' in hint for hint in site_policy.hints(kit / "local"))


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
    found = without_code({"lead": given})["lead"]
    assert code_from({"lead": found}) == {}
    assert found | closed == found
    everybody = {"format_version": "1.0", "permissions": {"lead": found}}
    assert not [one for one in allowed(everybody) if one[1] == "byoc"]


def test_code_is_for_nobody_who_may_not_submit_a_job():
    given = {"lead": {"submit_job": "o:site"}, "member": {"view": "any"}, "guest": "none"}
    assert with_code(given) == given | {"lead": {"submit_job": "o:site", "byoc": "o:site"}}
    assert without_code(given)["guest"] == "none"


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


def test_a_sites_own_launcher_is_kept(plain):
    local = plain / "clinic-a" / "local"
    own = resources(plain / "clinic-a")
    component(own, "process_launcher")["path"] = "nvflare.app_opt.job_launcher.docker_launcher.ClientDockerJobLauncher"
    (local / "resources.json.default").write_text(json.dumps(own))
    prepare_site(local, Settings(allow_log_streaming=None))
    found = resources(plain / "clinic-a")
    assert component(found, "process_launcher") == component(own, "process_launcher")
    assert found["allow_log_streaming"] is True


def test_log_streaming_can_be_asked_for(plain):
    assert allow(plain / "clinic-a") == 0
    assert allow(plain / "clinic-a", "--log-streaming") == 0
    assert resources(plain / "clinic-a")["allow_log_streaming"] is True


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
def test_log_streaming_that_an_own_file_does_not_choose_is_set(plain, said, words, then):
    kit = plain / "clinic-a"
    own = resources(kit) | {"allow_log_streaming": said}
    if said is None:  # NVFlare then streams
        del own["allow_log_streaming"]
    (kit / "local" / "resources.json").write_text(json.dumps(own))
    assert allow(kit, *words) == 0
    assert resources(kit, "resources.json")["allow_log_streaming"] is then


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
