"""What a site and the server look at before a job's files are read: its files, and their own."""

import io
import json
import os
import time
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.fuel.utils import waiter_utils
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.private.fed.utils.app_deployer import AppDeployer

from flareclust.aggregators.placed import FILE
from flareclust.engines.options import JobOptions
from flareclust.platform import file_guard
from flareclust.platform.admission import ServerValidator, SiteDeployer, _files_problem
from flareclust.platform.filters import SiteTaskPolicy
from flareclust.platform.job import build_job, export_job
from flareclust.platform.kit import allow_classes
from flareclust.protocol.registry import get
from flareclust.protocol.task import REFUSED
from flareclust.sites.job_log import JOBS_FILE, note_came, read_log
from flareclust.sites.permissions import Watch, rights_problem
from tests.kit_certificates import write_certificates

CONFIG = ["config/config_fed_client.json", "config/config_fed_server.json"]
#: How NVFlare knows the format of a configuration, beside .json.
OTHER_FORMATS = sorted(set(ConfigFormat.config_ext_formats()) - {".json"})

HOUR = 3600.0
SIGNED = [".__nvfl_sig.json", ".__nvfl_submitter.crt", "config/.__nvfl_sig.json", "config/.__nvfl_submitter.crt"]


def test_a_job_as_it_is_exported_and_signed_passes(tmp_path):
    app = export_job(build_job(get("lloyd"), {}, JobOptions(k=3)), tmp_path / "job") / "app"
    names = [str(path.relative_to(app)) for path in app.rglob("*") if path.is_file()]
    assert sorted(names) == CONFIG
    assert _files_problem([*names, *SIGNED]) is None
    assert _files_problem([*names, *SIGNED], at_server=True) is None


@pytest.mark.parametrize(
    "name",
    [
        *("config/extra.py", "extra.py", "config/package/__init__.py", "config/config_fed_client.conf"),
        *("config/sub/config_fed_client.json", "config/log_config.json", "custom/../config/extra.py", "/etc/passwd"),
        *("data/.__nvfl_sig.json", "config/config_fed_client.json/x", "config/placed.npz", "customs/extra.py"),
    ],
)
def test_any_other_file_is_refused_by_its_name(name):
    problem = _files_problem([*CONFIG, name])
    assert f"refuses the job for its file {name!r}" in problem


def test_arrays_of_a_finished_federation_go_to_the_server_alone():
    assert _files_problem([*CONFIG, f"config/{FILE}"], at_server=True) is None
    assert _files_problem([*CONFIG, "config/other.npz"], at_server=True) is not None


def test_code_is_a_matter_of_rights_and_not_of_files():
    assert _files_problem([*CONFIG, "custom/faulty.py", "custom/flareclust/cli.py"]) is None


@pytest.fixture
def kit(tmp_path):
    """A site's kit."""
    for name in ("startup", "local"):
        (tmp_path / name).mkdir(mode=0o755)
    allow_classes(tmp_path / "local")
    (tmp_path / "local" / "privacy.json").write_text("{}")
    return tmp_path


def packed(**files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("config/", "")
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


JOB = packed(**{CONFIG[0]: "{}", CONFIG[1]: "{}"})


def context(kit, **props) -> FLContext:
    fl_ctx = FLContext()
    engine = SimpleNamespace(args=SimpleNamespace(workspace=str(kit)))
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    for key, value in props.items():
        fl_ctx.set_prop(getattr(FLContextKey, key), value, private=True, sticky=False)
    return fl_ctx


def deploy(deployer, kit, files=JOB):
    return deployer.deploy(Workspace(str(kit), "north"), "job-1", {}, "app", files, context(kit))


@pytest.fixture
def unpacked(monkeypatch):
    """What NVFlare's deployer would unpack."""
    seen: list[bytes] = []
    monkeypatch.setattr(AppDeployer, "deploy", lambda self, w, j, m, a, data, c: seen.append(data))
    return seen


def test_a_site_unpacks_no_job_with_other_files(kit, unpacked, caplog):
    deployer = SiteDeployer()
    message = deploy(deployer, kit, packed(**{CONFIG[0]: "{}", "config/extra.py": "1"}))
    assert (
        message == "refuses the job for its file 'config/extra.py': a job is config/*.json, and code goes into custom/"
    )
    assert [record.getMessage() for record in caplog.records] == [f"job job-1 is not run: this site {message}"]
    assert deploy(deployer, kit, b"no zip") == "the job's files cannot be unpacked"
    assert unpacked == []
    assert deploy(deployer, kit) == ""
    assert unpacked == [JOB]


def test_jobs_are_in_the_sites_log_whether_they_are_let_in_or_not(kit, monkeypatch):
    """Also those that NVFlare's deployer refuses for the rights of who submitted them, or cannot unpack."""
    content = settings(path="flareclust.executors.kfed.KFedExecutor")[CONFIG[0]]

    def unpack(self, workspace, job_id, *others):
        app = Path(workspace.get_app_dir(job_id)) / "config"
        app.mkdir(parents=True)
        (app / "config_fed_client.json").write_text(content)
        if job_id == "broken":
            raise RuntimeError
        return "" if job_id == "good" else "not authorized"

    monkeypatch.setattr(AppDeployer, "deploy", unpack)
    meta = {"name": "night", "submitter_name": "lead@hub.org"}
    for job, files in (("good", JOB), ("rejected", JOB), ("damaged", b"no zip"), ("good", JOB)):
        SiteDeployer().deploy(Workspace(str(kit), "north"), job, meta, "app", files, context(kit))
    with pytest.raises(RuntimeError):
        SiteDeployer().deploy(Workspace(str(kit), "north"), "broken", meta, "app", JOB, context(kit))
    lines = [json.loads(line) for line in (kit / JOBS_FILE).read_text().splitlines() if line]
    assert {(line["name"], line["user"]) for line in lines} == {("night", "lead@hub.org")}
    assert [(line["job"], line["algorithm"]) for line in lines] == [
        ("good", "kfed"),
        ("rejected", ""),
        ("damaged", ""),
        ("good", ""),
        ("broken", ""),
    ]
    assert [line["refused"].partition(" of ")[0] for line in lines] == [
        "",
        "not authorized",
        "the job's files cannot be unpacked",
        "keeps the folder good",
        "could not unpack the job's files",
    ]


@pytest.mark.parametrize(
    ("command", "found", "words"),
    [
        ("submit_job", (False, ""), "not permitted (its rights, local/authorization.json)"),
        ("submit_job", (False, "no rule"), "no rule (its rights, local/authorization.json)"),
        ("submit_job", (True, ""), None),
        ("abort_job", (False, ""), None),
    ],
)
def test_a_job_that_nvflare_rejects_before_it_is_sent_is_in_the_sites_log(kit, monkeypatch, command, found, words):
    asked = []
    monkeypatch.setattr(AuthorizationService, "authorize", lambda about: asked.append(about) or found)
    items = {FLContextKey.JOB_META: {"job_id": "job-1", "name": "night"}}
    items |= {FLContextKey.SUBMITTER_NAME: "lead@hub.org", FLContextKey.SUBMITTER_ROLE: "lead"}
    SiteDeployer().handle_event(
        EventType.AUTHORIZE_COMMAND_CHECK, context(kit, SECURITY_ITEMS=items, COMMAND_NAME=command)
    )
    assert [job.refused for job in read_log(kit)] == ([words] if words else [])
    assert [(about.right, about.submitter.role) for about in asked] == [("submit_job", "lead")] * (
        command == "submit_job"
    )
    assert [(job.job, job.name, job.user, job.accepted) for job in read_log(kit)] == [
        ("job-1", "night", "lead@hub.org", False)
    ] * bool(words)


def test_what_leaves_in_a_job_is_counted_in_its_process_and_added_up_at_its_end(kit):
    note_came(kit, "job-1", "night", "lead@hub.org", "kfed", "")
    (kit / "job-1").mkdir()
    deployer, inside = SiteDeployer(), context(kit)
    inside.get_engine().get_workspace = lambda: Workspace(str(kit), "north")
    inside.set_prop(ReservedKey.RUN_NUM, "job-1")
    refused = DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: "has too few rows"}).to_shareable()
    arrays = DXO(DataKind.WEIGHTS, data={"centroids": np.zeros((3, 2)), "counts": np.zeros(3)}).to_shareable()
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    for reply in (arrays, refused, arrays, failed):
        inside.set_prop(FLContextKey.TASK_RESULT, reply, private=True, sticky=False)
        deployer.handle_event(EventType.AFTER_TASK_RESULT_FILTER, inside)
    deployer.handle_event(EventType.JOB_COMPLETED, context(kit, CURRENT_JOB_ID="job-1"))
    (job,) = read_log(kit)
    assert (job.exchanges, job.bytes_out) == (2, 2 * (3 * 2 + 3) * 8)
    assert "EXECUTION_EXCEPTION" in job.refused
    assert job.ended is not None


def test_a_log_of_jobs_that_cannot_be_written_stops_no_job(kit, unpacked, caplog):
    (kit / JOBS_FILE).mkdir()
    assert deploy(SiteDeployer(), kit) == ""
    assert "the log of jobs (flareclust site log) cannot be written: Is a directory" in caplog.text


@pytest.mark.parametrize(("minutes", "said"), [(-60, "ended"), (2, "ends")])
def test_no_job_is_let_in_where_its_process_could_not_connect(kit, unpacked, monkeypatch, minutes, said):
    """Else its failure would be that of everybody's job."""
    now = datetime.now(timezone.utc)
    begins, ends = now - timedelta(days=9), now + timedelta(minutes=minutes)
    write_certificates(kit, root=(begins, now + timedelta(days=900)), client=(begins, ends))
    monkeypatch.chdir(kit)
    message = deploy(SiteDeployer(), kit)
    assert message.startswith(f"has a certificate (client.crt) that {said} {ends:%Y-%m-%d %H:%M} UTC")
    assert message in ServerValidator().validate(str(kit))[0]
    assert unpacked == []


def test_a_certificate_that_ends_within_days_lets_jobs_in_and_is_logged(kit, unpacked, caplog):
    now = datetime.now(timezone.utc)
    write_certificates(kit, root=(now - timedelta(days=9), now + timedelta(days=9)))
    assert deploy(SiteDeployer(), kit) == ""
    assert "the certificate rootCA.pem ends" in caplog.text


def test_no_job_is_let_in_where_messages_could_hold_files(kit, unpacked, monkeypatch):
    monkeypatch.setattr(file_guard, "problem", lambda: "cannot keep files out")
    monkeypatch.chdir(kit)
    assert deploy(SiteDeployer(), kit) == "cannot keep files out"
    assert ServerValidator().validate(str(kit)) == ("the server cannot keep files out", {})
    assert unpacked == []


def test_components_of_kits_protect_their_process(monkeypatch):
    installed = []
    monkeypatch.setattr(file_guard, "install", lambda: installed.append(True))
    SiteDeployer()
    ServerValidator()
    SiteTaskPolicy()
    assert installed == [True] * 3


@pytest.mark.parametrize("component", [SiteDeployer, ServerValidator])
def test_a_clock_that_is_set_back_keeps_no_process_waiting(component, monkeypatch):
    monkeypatch.setattr(waiter_utils, "time", time)
    component()
    clock = iter([HOUR] + [0.0] * 100)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    assert waiter_utils.conditional_wait(Event(), 0.05, Signal()) == waiter_utils.WaiterRC.TIMEOUT


def test_a_refusal_has_no_path_of_the_kit(kit, unpacked, monkeypatch):
    (kit / "local" / "resources.json").write_text("{")
    monkeypatch.chdir(kit)
    message = deploy(SiteDeployer(), kit)
    assert message.startswith("cannot say what jobs may do: local/resources.json ")
    (kit / "app").mkdir()
    assert ServerValidator().validate(str(kit / "app")) == (f"the server {message}", {})


def test_a_site_with_an_old_list_unpacks_no_job(kit, unpacked):
    (kit / "local" / "resources.json").write_text(json.dumps({"class_allow_list": ["flareclust."]}))
    assert "lets jobs call every function of flareclust" in deploy(SiteDeployer(), kit)
    assert unpacked == []


def settings(side="client", path="a.B", **args) -> dict[str, str]:
    """The files of a job, with these arguments of the component at one side."""
    component = {"executors": [{"tasks": ["cluster"], "executor": {"path": path, "args": args}}]}
    return {name: json.dumps(component if side in name else {"format_version": 2}) for name in CONFIG}


#: What is in a job that no exported one has, and what is said of it.
UNRESOLVED = [
    (settings(note="{$HOME}"), f"{CONFIG[0]} has a brace in 'executors[0].executor.args.note'"),
    (settings(side="server", note="{JOB_ID}"), f"{CONFIG[1]} has a brace in 'executors[0].executor.args.note'"),
    (settings(notes=["a", ["b", "c}"]]), f"{CONFIG[0]} has a brace in 'executors[0].executor.args.notes[1][1]'"),
    (settings(ranges={"{": [0, 1]}), f"{CONFIG[0]} has a brace in 'a key of executors[0].executor.args.ranges'"),
    ({CONFIG[0]: '{"@def": "\\u007b$HOME\\u007d"}'}, f"{CONFIG[0]} has a brace in '@def'"),
    ({CONFIG[0]: '{"secret": "${secret:HOME}"}'}, f"{CONFIG[0]} has a brace in 'secret'"),
    ({"config/./config_fed_client.json": '{"a": "{b}"}'}, f"{CONFIG[0]} has a brace in 'a'"),
    ({CONFIG[0]: '{"a": 1, "a": "b"}'}, f"{CONFIG[0]} has the key 'a' twice, again in line 1"),
    ({CONFIG[0]: '{"a": 1} // comment'}, f"{CONFIG[0]} is not JSON"),
    ({CONFIG[0]: "a = 1"}, f"{CONFIG[0]} is not JSON"),
    ({CONFIG[0]: '["a"]'}, f"{CONFIG[0]} is no JSON object"),
    ({CONFIG[0]: b"\xff"}, f"{CONFIG[0]} is not text in UTF-8"),
    ({CONFIG[0]: '{"a":' * 60 + "1" + "}" * 60}, f"{CONFIG[0]} is nested too deep"),
    ({CONFIG[0]: '{"a":' + "[" * 200_000}, f"{CONFIG[0]} is not JSON: it is nested too deep"),
    ({CONFIG[0]: '{"a": "' + "b" * (1 << 24) + '"}'}, f"{CONFIG[0]} is longer than 16384 KiB"),
]


@pytest.mark.parametrize(("files", "why"), UNRESOLVED, ids=range(len(UNRESOLVED)))
def test_no_job_is_let_in_whose_settings_nvflare_would_resolve(kit, unpacked, monkeypatch, files, why):
    """At a site before anything is unpacked, and at the server before anything is read; no value is said."""
    message = deploy(SiteDeployer(), kit, packed(**files))
    assert message.startswith(f"refuses the job, whose {why}")
    assert unpacked == []
    monkeypatch.chdir(kit)
    app = kit / "job-1" / "app"
    for name, content in files.items():
        file = app / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert ServerValidator().validate(str(app)) == (f"the server {message}", {})
    assert "HOME" not in message
    assert len(message) < 400


def test_of_two_entries_with_one_name_both_are_read(kit, unpacked):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(CONFIG[0], '{"a": "{b}"}')
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(CONFIG[0], "{}")
    assert "has a brace in 'a'" in deploy(SiteDeployer(), kit, out.getvalue())
    assert unpacked == []


def test_code_in_a_job_does_not_permit_braces_in_its_settings(kit, unpacked):
    files = settings(note="{$HOME}") | {"custom/own.py": "NAMES = {'a'}"}
    assert "has a brace" in deploy(SiteDeployer(), kit, packed(**files))
    own = settings(note="plain") | {"custom/own.py": "NAMES = {'a'}"}
    assert deploy(SiteDeployer(), kit, packed(**own)) == ""


def test_a_packed_job_that_is_damaged_or_encrypted_is_refused(kit, unpacked):
    whole = packed(**settings())
    at = whole.index(b"executors")
    assert deploy(SiteDeployer(), kit, whole[:at] + b"X" + whole[at + 1 :]) == "the job's files cannot be unpacked"
    assert unpacked == []


@pytest.mark.parametrize("name", [f"config_fed_{side}{ext}" for side in ("client", "server") for ext in OTHER_FORMATS])
def test_a_job_brings_its_configuration_in_no_other_format(name):
    """NVFlare reads all of these where there is no .json."""
    assert "refuses the job for its file" in _files_problem([f"config/{name}"])


def test_a_site_unpacks_no_job_over_the_folder_of_another(kit):
    labels = kit / "job-1" / "labels.csv"
    labels.parent.mkdir()
    labels.write_text("row,label\n0,2\n")
    message = deploy(SiteDeployer(), kit)
    assert message.startswith("keeps the folder job-1 of an earlier job; submit the job again")
    assert labels.read_text() == "row,label\n0,2\n"


def test_a_site_unpacks_no_job_over_labels_that_it_keeps_elsewhere(kit, unpacked):
    (kit / "local" / "flareclust.yaml").write_text("path: rows.npy\nlabels: kept\n")
    assert deploy(SiteDeployer(), kit) == ""
    (kit / "local" / "kept").mkdir()
    (kit / "local" / "kept" / "job-1.csv").write_text("row,label\n")
    assert deploy(SiteDeployer(), kit).startswith("has labels of an earlier job job-1; submit the job again")
    (kit / "local" / "flareclust.yaml").write_text("path: [\n")
    assert deploy(SiteDeployer(), kit) == "", "what is wrong with it the job's own answer says"


def start(deployer, kit, job):
    deployer.handle_event(EventType.AFTER_JOB_LAUNCH, context(kit, JOB_META={"job_id": job}))


def end(deployer, kit, job):
    deployer.handle_event(EventType.JOB_COMPLETED, context(kit, CURRENT_JOB_ID=job))


def test_a_file_that_changes_while_a_job_runs_keeps_the_next_one_out_until_the_site_is_started_anew(kit, unpacked):
    deployer, privacy = SiteDeployer(), kit / "local" / "privacy.json"
    assert deploy(deployer, kit) == ""
    start(deployer, kit, "job-1")
    privacy.unlink()
    end(deployer, kit, "job-1")
    message = deploy(deployer, kit)
    assert message.startswith(
        "takes no job, since local/privacy.json changed while a job ran: look at what is there now"
    )
    privacy.write_text("{}")
    assert deploy(deployer, kit) == message, "what it was put back to may not be all that was done"
    assert len(unpacked) == 1
    assert deploy(SiteDeployer(), kit) == ""


def test_a_change_while_no_job_runs_holds_from_the_next_job_on(kit, unpacked):
    deployer, privacy = SiteDeployer(), kit / "local" / "privacy.json"
    for number in range(3):
        privacy.write_text(json.dumps({"number": number}))
        assert deploy(deployer, kit) == ""
        start(deployer, kit, f"job-{number}")
        end(deployer, kit, f"job-{number}")
    (kit / "local" / "notes.txt").write_text("not about jobs")
    assert len(unpacked) == 3


def test_a_job_that_ends_does_not_hide_what_changed_during_another(kit):
    watch, local = Watch(), kit / "local"
    assert watch.problem(local) is None
    watch.started("first", local)
    assert watch.problem(local) is None
    watch.started("second", local)
    assert watch.ended("first", local) == []
    (local / "authorization.json").write_text("{}")
    assert "local/authorization.json" in watch.problem(local)
    assert watch.ended("second", local) == ["authorization.json"]
    assert watch.problem(local) is not None


def test_files_of_one_name_in_two_folders_are_told_apart(kit):
    watch, local = Watch(), kit / "local"
    first, second = (local / "custom" / folder / "rules.py" for folder in "ab")
    for path in (first, second):
        path.parent.mkdir(parents=True)
        path.write_text("")
    watch.started("job", local)
    first.write_text("changed = True")
    assert watch.ended("job", local) == ["custom/a/rules.py"]
    assert "local/custom/a/rules.py changed" in watch.problem(local)


def test_a_change_between_letting_a_job_in_and_its_start_counts(kit):
    watch, local = Watch(), kit / "local"
    assert watch.problem(local) is None
    (local / "privacy.json").unlink()
    watch.started("first", local)
    assert watch.ended("first", local) == ["privacy.json"]


def test_a_kit_that_other_accounts_can_write_runs_no_job(kit, unpacked):
    local = kit / "local"
    assert rights_problem(local) is None
    for path in (local / "privacy.json", local):
        path.chmod(path.stat().st_mode | 0o002)
        assert "which other accounts can write; run `chmod go-w local local/*` in its kit" in deploy(
            SiteDeployer(), kit
        )
        path.chmod(path.stat().st_mode & ~0o002)
    assert unpacked == []
    assert deploy(SiteDeployer(), kit) == ""


def test_a_file_that_is_a_link_out_of_the_kit_runs_no_job(kit, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "privacy.json"
    outside.write_text("{}")
    file = kit / "local" / "privacy.json"
    file.unlink()
    file.symlink_to(outside)
    assert rights_problem(kit / "local") == "has local/privacy.json as a link out of its kit; put the file itself there"
    file.unlink()
    (kit / "local" / "kept.json").write_text("{}")
    file.symlink_to("kept.json")
    assert rights_problem(kit / "local") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
def test_a_file_of_another_account_runs_no_job(kit):
    os.chown(kit / "local" / "privacy.json", 12345, 12345)
    assert "belongs to another account" in rights_problem(kit / "local")


def test_the_group_of_one_account_alone_may_write(kit, monkeypatch):
    """Where new files are writable by the account's own group, as several systems have it by default."""
    file = kit / "local" / "privacy.json"
    file.chmod(0o664)
    account = SimpleNamespace(pw_gid=file.stat().st_gid, pw_name="flare")
    monkeypatch.setattr("pwd.getpwuid", lambda number: account)
    for name, members, well in (("flare", [], True), ("flare", ["flare"], True), ("flare", ["x"], False)):
        group = SimpleNamespace(gr_gid=file.stat().st_gid, gr_name=name, gr_mem=members)
        monkeypatch.setattr("grp.getgrgid", lambda number, group=group: group)
        assert (rights_problem(kit / "local") is None) is well
    monkeypatch.setattr("grp.getgrgid", lambda number: SimpleNamespace(gr_gid=account.pw_gid, gr_name="all", gr_mem=[]))
    assert "privacy.json, which other accounts can write" in rights_problem(kit / "local")


def test_a_server_looks_at_jobs_and_at_its_own_kit(kit, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(kit)
    validator = ServerValidator()
    monkeypatch.chdir("/")
    app = tmp_path_factory.mktemp("job") / "app_server"
    (app / "config").mkdir(parents=True)
    (app / CONFIG[1]).write_text("{}")
    (app / "config" / "placed.npz").write_bytes(b"")
    assert validator.validate(str(app)) == ("", {})
    (app / "config" / "extra.py").write_text("")
    assert validator.validate(str(app))[0].startswith("the server refuses the job for its file 'config/extra.py'")
    (app / "config" / "extra.py").unlink()
    said = {"job_id": "job-1"}
    validator.handle_event(EventType.JOB_STARTED, context(kit, EVENT_DATA=said))
    (kit / "local" / "authorization.json").write_text("{}")
    validator.handle_event(EventType.JOB_COMPLETED, context(kit, EVENT_DATA=said))
    assert "the server takes no job, since local/authorization.json changed" in validator.validate(str(app))[0]


def test_names_that_lead_out_of_the_folder_are_no_names_of_a_job():
    assert Path("custom/../config/extra.py").parts[0] == "custom"
    assert _files_problem(["custom/../../local/privacy.json"]) is not None
