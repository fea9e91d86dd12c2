"""The commands `flareclust init` and `flareclust doctor`."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from flareclust import doctor
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.config import Experiment
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.platform import status as platform_status
from flareclust.platform.status import FederationStatus
from tests.kit_certificates import write_certificates
from tests.patience import PATIENCE


# --- init ---
def test_the_sweep_that_is_written_can_be_read(command, tmp_path):
    done = command("init", "sweep", str(tmp_path / "new"))
    assert (done.code, done.err) == (0, "")
    assert f"flareclust sweep {tmp_path}/new/sweep.toml" in done.out
    assert len(sweep_settings.trials(sweep_settings.read_sweep(tmp_path / "new" / "sweep.toml"))) == 4 * 2 * 5


def test_the_deployments_that_are_written_name_flows_and_take_their_parameters(command, tmp_path):
    assert command("init", "schedule", str(tmp_path)).code == 0
    found = {one["name"]: one for one in yaml.safe_load((tmp_path / "prefect.yaml").read_text())["deployments"]}
    assert set(found) == {"nightly", "experiment", "sweep"}
    for one in found.values():
        module, _, name = one["entrypoint"].rpartition(".")
        assert f"def {name}(" in find_spec(module).loader.get_source(module)
    for name in ("nightly", "experiment"):
        Experiment(**found[name]["parameters"]["experiment"])
    assert len(sweep_settings.trials(sweep_settings.Sweep(**found["sweep"]["parameters"]["sweep"]))) == 10


def test_the_project_that_is_written_is_one_of_nvflare_with_our_builder(command, tmp_path):
    from nvflare.lighter.provision import prepare_project

    from flareclust.platform.provision import SiteDefaults

    assert command("init", "consortium", str(tmp_path)).code == 0
    about = yaml.safe_load((tmp_path / "project.yml").read_text())
    project = prepare_project(about)
    assert len(project.get_clients()) >= 2
    (ours,) = [one for one in about["builders"] if one["path"] == "flareclust.provision.SiteDefaults"]
    SiteDefaults(**ours.get("args", {}))


def test_the_services_of_a_team_reach_each_other_by_their_names(command, tmp_path):
    assert command("init", "team", str(tmp_path)).code == 0
    text = (tmp_path / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    assert set(services) == {"database", "prefect", "mlflow", "worker"}
    assert set(re.findall(r"(?:@|http://)([a-z]+)[:/]", text)) <= set(services)
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services) - {name}
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        words = [service.get("command", ""), service.get("healthcheck", {}).get("test", "")]
        assert "PASSWORD" not in " ".join(words), "every account of the machine can list command lines"
    assert "mlflow:5000" in services["mlflow"]["command"].split("--allowed-hosts ")[1].split(",")


@pytest.mark.parametrize(("name", "original"), [("project.yml", "poc_workspace"), ("prefect.yaml", ".")])
def test_the_files_are_those_of_the_repository(name, original):
    from tests.paths import ROOT

    assert (ROOT / "flareclust/cli/templates" / name).read_bytes() == (ROOT / original / name).read_bytes()


def test_nothing_is_overwritten(command, tmp_path):
    (tmp_path / "sweep.toml").write_text("mine")
    done = command("init", "sweep", str(tmp_path))
    assert done.code == 2
    assert "is there already" in done.err
    assert (tmp_path / "sweep.toml").read_text() == "mine"


# --- doctor ---
@pytest.fixture
def healthy(monkeypatch, tmp_path):
    """A folder of its own, and nothing of the machine that a test may not rely on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_LITTLE", 0)
    monkeypatch.setattr(doctor, "_NOTHING", 0)
    monkeypatch.setattr(doctor, "_PORTS", {})
    monkeypatch.setattr(doctor, "leftovers", list)
    monkeypatch.setattr(doctor, "_without_bytecode", lambda: None)
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "FLARECLUST_DATA"):
        monkeypatch.delenv(name, raising=False)


def states(found):
    return {(one.check, one.state) for one in found}


def test_a_machine_that_is_ready_gives_0_and_a_line_per_check(command, healthy):
    done = command("doctor", "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert {one["state"] for one in found} <= {"ok", "note"}
    assert {"python", "packages", "disk", "leftovers", "plugins", "MLflow", "Prefect", "data"} <= {
        one["check"] for one in found
    }
    lines = command("doctor").out.splitlines()
    assert len(lines) == len(found) + sum(one["state"] == "note" for one in found)
    assert all(line.startswith(("ok ", "note ", "     to do: ")) for line in lines)


def test_an_extra_that_is_missing_is_named_with_what_installs_it(command, healthy, monkeypatch):
    def without(name):
        if name == "opendp":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without)
    done = command("doctor")
    assert done.code == 0
    assert "note packages: the extra dp is not installed (opendp)" in done.out
    assert "to do: python -m pip install 'flareclust[dp]' if you need it (dp-lloyd, dp-oneshot and dp-gmm)" in done.out
    assert "ok   packages: the extra" not in done.out


def test_a_package_outside_of_its_pin_fails_and_the_command_for_it_is_named(command, healthy, monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: "0.155.0" if name == "fastapi" else version(name))
    done = command("doctor")
    assert done.code == 1
    assert "fail packages: fastapi has version 0.155.0, needed is fastapi<0.151,>=0.139" in done.out
    assert "to do: python -m pip install 'fastapi<0.151,>=0.139'" in done.out


def test_little_disk_a_taken_port_leftovers_and_a_wrong_folder_are_warnings(healthy, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(doctor, "_PORTS", {taken.getsockname()[1]: "flareclust ui --port"})
        monkeypatch.setattr(doctor, "_LITTLE", 1 << 60)
        monkeypatch.setattr(doctor, "leftovers", lambda: [tmp_path / "fc-x"])
        monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path / "none"))
        found = doctor.examine()
    warned = {one.check for one in found if one.state == "warn"}
    assert warned == {"disk", "ports", "leftovers", "data"}
    assert all(one.advice for one in found if one.state == "warn")


def test_packages_without_bytecode_are_a_warning_where_python_will_not_write_it(monkeypatch, tmp_path):
    spec = ModuleSpec("nvflare", None, origin=str(tmp_path / "packages" / "nvflare" / "__init__.py"))
    spec.has_location = True
    monkeypatch.setattr(doctor, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (warned,) = [one for one in doctor.examine() if one.check == "python" and one.state == "warn"]
    assert warned.advice == f"python -m compileall -q {tmp_path / 'packages'}"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "packages").mkdir()
    assert ("python", "warn") not in states(doctor.examine()), "the first import writes it"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path(spec.cached).parent.mkdir(parents=True)
    Path(spec.cached).touch()
    assert ("python", "warn") not in states(doctor.examine())


def test_servers_that_are_set_and_do_not_answer_fail(healthy, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert {("MLflow", "fail"), ("Prefect", "fail")} <= states(doctor.examine())
    (tmp_path / "notes.db").write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/notes.db")
    assert ("MLflow", "fail") in states(doctor.examine())


def test_servers_that_answer_are_named_without_their_passwords(healthy, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api/")
    monkeypatch.setattr(doctor.store, "check_store", lambda uri: None)
    asked = []
    monkeypatch.setattr(doctor.urllib.request, "urlopen", lambda url, timeout: asked.append(url) or nullcontext())
    found = {one.check: (one.state, one.found) for one in doctor.examine()}
    assert found["MLflow"] == ("ok", "the store postgresql://...db/mlflow answers")
    assert found["Prefect"] == ("ok", "the server http://127.0.0.1:9/api/ answers")
    assert asked == ["http://127.0.0.1:9/api/health"]


def test_plugins_are_named_and_one_that_cannot_be_used_fails(healthy, monkeypatch):
    def of_plugins(names):
        if names == ["broken"]:
            raise UserError("broken names no class")

    monkeypatch.setattr(doctor.class_list, "installed_plugins", lambda: ["mine", "broken"])
    monkeypatch.setattr(doctor.class_list, "of_plugins", of_plugins)
    assert [(one.state, one.found) for one in doctor.examine() if one.check == "plugins"] == [
        ("fail", "broken names no class"),
        ("ok", "installed: mine, broken"),
    ]


def test_the_files_of_a_kit_are_as_they_should_be_or_each_fault_is_named(healthy, monkeypatch, tmp_path):
    faults = []
    monkeypatch.setattr(doctor, "local_of", lambda kit: kit / "local")
    monkeypatch.setattr(doctor.KitFiles, "problems", lambda files, site: faults)
    assert ("kit", "ok") in states(doctor.examine(tmp_path / "north"))
    faults += ["the allow-list is missing", "others can read the kit"]
    found = [one for one in doctor.examine(tmp_path / "north") if one.check == "kit"]
    assert [(one.state, one.found) for one in found] == [("fail", fault) for fault in faults]
    assert {one.advice for one in found} == {f"flareclust site check {tmp_path / 'north'}"}


@pytest.mark.parametrize(("days", "state"), [(-1, "fail"), (9, "warn")])
def test_the_end_of_a_kits_certificate_is_named(healthy, monkeypatch, tmp_path, days, state):
    monkeypatch.setattr(doctor, "local_of", lambda kit: kit / "local")
    monkeypatch.setattr(doctor.KitFiles, "problems", lambda files, site: [])
    now = datetime.now(timezone.utc)
    write_certificates(tmp_path, root=(now - timedelta(days=99), now + timedelta(days=days)))
    assert ("kit", state) in states(doctor.examine(tmp_path))


def test_a_site_with_a_kit_of_an_older_root_than_the_server_is_told(healthy, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "local_of", lambda kit: kit / "local")
    monkeypatch.setattr(doctor.KitFiles, "problems", lambda files, site: [])
    asked = []
    monkeypatch.setattr(doctor, "is_foreign", lambda *where: asked.append(where) or True)
    kit = tmp_path / "north"
    (kit / "startup").mkdir(parents=True)
    for text in ("{", "[]", '{"servers": [{"service": {"target": "hub"}}]}'):
        (kit / "startup" / "fed_client.json").write_text(text)
        assert ("kit", "fail") not in states(doctor.examine(kit))
    (kit / "startup" / "fed_client.json").write_text('{"servers": [{"service": {"target": "hub:8002"}}]}')
    (found,) = [one for one in doctor.examine(kit) if one.check == "kit" and one.state == "fail"]
    assert found.found == "the server hub:8002 has a certificate of another root than north"
    assert asked == [(kit, "hub", 8002)]


def test_a_leads_kit_has_the_federation_looked_at_too(healthy, monkeypatch, tmp_path):
    def status(kit):
        if answers:
            return FederationStatus("clinics", 0.0, "2.9.0", {}, [], [], hints)
        raise JobFailed("no answer")

    answers, hints = True, ["the certificate of north ends 2027-01-01"]
    monkeypatch.setattr(doctor, "local_of", lambda kit: kit / "local")
    monkeypatch.setattr(platform_status, "federation_status", status)
    assert "federation" not in {one.check for one in doctor.examine(tmp_path)}, "a site's kit"
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_admin.json").write_text("{}")
    assert ("federation", "warn") in states(doctor.examine(tmp_path))
    hints.clear()
    assert ("federation", "ok") in states(doctor.examine(tmp_path))
    answers = False
    (found,) = [one for one in doctor.examine(tmp_path) if one.check == "federation"]
    assert (found.state, found.found) == ("warn", "no answer")
    answers, own = True, "the certificate client.crt ends soon"
    monkeypatch.setattr(doctor, "ends_soon", lambda kit: own)
    hints.append(own)
    assert [one.check for one in doctor.examine(tmp_path) if own in one.found] == ["kit"], "it is said once"


def test_what_is_wrong_with_an_installed_nvflare_is_said_without_importing_it():
    code = "import sys, flareclust.doctor; print('nvflare' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout == "False\n"


def test_a_kit_that_is_none_fails(healthy, tmp_path):
    assert ("kit", "fail") in states(doctor.examine(tmp_path))


def test_only_folders_of_killed_runs_are_leftovers(tmp_path, monkeypatch):
    from flareclust.platform import scratch

    monkeypatch.setattr(scratch, "scratch_base", lambda: tmp_path)
    monkeypatch.setattr(scratch, "_YOUNGEST_LEFTOVER", 0.0)
    (tmp_path / "fc-of-others").mkdir()
    (tmp_path / "fc-killed").mkdir()
    (tmp_path / "fc-killed" / ".flareclust").touch()
    living, lock = scratch._make(tmp_path)
    try:
        assert scratch.leftovers() == [tmp_path / "fc-killed"]
        assert living.exists()
    finally:
        os.close(lock)
