"""Our Builder among others of NVFlare's: signatures, its place, and containers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nvflare.fuel.utils.class_utils import instantiate_class

from flareclust.sites.class_list import of_server, of_sites
from tests.patience import PATIENCE
from tests.unit.platform.provision_cases import OURS, SITES, changed, component, provisioned, resources

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
    return subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE).returncode == 0


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
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
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


@pytest.mark.slow
def test_another_site_more_or_less_leaves_all_other_kits_as_they_are_unless_it_is_behind_a_relay(tmp_path):
    """NVFlare makes the certificate with which a relay listens anew each time; nobody compares it with an older one."""
    relay = {"name": "relay", "type": "relay", "org": "hub", "listening_host": {"default_host": "relay", "port": 8102}}
    further = {"name": "clinic-e", "type": "client", "org": "e"}
    behind = {"name": "clinic-d", "type": "client", "org": "d", "connect_to": {"name": "relay"}}

    def with_more(*added):
        return files_in(
            provisioned(changed(tmp_path, lambda project: project["participants"].extend(added)), tmp_path)[0]
        )

    first, more, less = with_more(relay), with_more(relay, further), with_more(relay)
    relayed = with_more(relay, further, behind)
    assert differing(first, more) == differing(first, less) == {"relay/startup/server.crt", "relay/startup/server.key"}
    assert {name.partition("/")[0] for name in more.keys() - first} == {"clinic-e"}
    about = {f"{site}/startup/fed_client.json" for site in (*SITES, "clinic-e")} | {"localhost/startup/fed_server.json"}
    assert differing(more, relayed) - differing(first, more) == about
    key = "clinic-e/startup/client.key"
    assert relayed[key] == more[key], "who is put out of the project comes back with the same key"


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def differing(before, after):
    return {name for name in before if after.get(name) != before[name]}
