"""Backups: what comes back is what was there, nothing is half done, and no budget is spent twice."""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.own_files import state_folder
from flareclust.platform import backup as module
from flareclust.platform.backup import back_up, restore
from flareclust.sites.account import accounts, session_of
from tests.command_line import call
from tests.unit.sites.account_cases import kit_of, spend


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def kit(tmp_path) -> Path:
    """A kit with a script, a key, an empty folder, a link, and what a running process leaves."""
    folder = tmp_path / "north"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir(mode=0o750)
    (folder / "empty").mkdir()
    (folder / "startup" / "start.sh").write_text("#!/bin/sh\n")
    (folder / "startup" / "start.sh").chmod(0o755)
    (folder / "startup" / "client.key").write_text("secret")
    (folder / "startup" / "client.key").chmod(0o400)
    (folder / "link").symlink_to("startup/start.sh")
    (folder / "daemon_pid.fl").write_text("4711")
    return folder


@pytest.fixture
def archive(tmp_path) -> Path:
    return tmp_path / "backups" / "one.tar.gz"


def made(archive: Path, *paths: Path) -> Path:
    archive.parent.mkdir(exist_ok=True)
    back_up(archive, paths)
    return archive


def tree(folder: Path) -> dict[str, tuple[int, object]]:
    """Return modes and contents of what is in a folder, but for the notes of processes."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(folder.rglob("*")):
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        if path.suffix != ".fl":
            found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode), what
    return found


def test_an_empty_machine_gets_back_what_was_there_with_modes_and_times(kit, archive):
    before, changed = tree(kit), (kit / "startup" / "start.sh").stat().st_mtime_ns
    made(archive, kit)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert os.listdir(archive.parent) == [archive.name]
    shutil.rmtree(kit)
    restore(archive)
    assert tree(kit) == before
    assert (kit / "startup" / "start.sh").stat().st_mtime_ns == changed
    assert not (kit / "daemon_pid.fl").exists(), "start.sh would not start"
    assert sorted(os.listdir(kit.parent)) == ["backups", "north"]


def test_a_file_in_the_place_of_a_folder_and_the_state_come_back(tmp_path, archive):
    store, results = tmp_path / "notes.txt", tmp_path / "state" / "flareclust" / "results" / "r"
    store.write_text("champion")
    results.mkdir(parents=True)
    (results / "result.json").write_text("{}")
    (results.parents[1] / "running").mkdir()
    (results.parents[1] / "running" / "lock").touch()
    made(archive, store)
    store.unlink()
    shutil.rmtree(tmp_path / "state")
    restore(archive)
    assert store.read_text() == "champion"
    assert (results / "result.json").read_text() == "{}"
    assert not (results.parents[1] / "running").exists()


def test_a_store_in_use_comes_back_as_it_was_at_one_time(tmp_path, archive):
    store = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE runs (id)")
        connection.execute("INSERT INTO runs VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO runs VALUES (2)")  # not committed
        made(archive, store)
    store.unlink()
    restore(archive)
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [(1,)]


def test_what_sqlite_has_left_of_another_store_does_not_change_the_restored_one(tmp_path, archive):
    store, journal = tmp_path / "mlflow.db", tmp_path / "mlflow.db-wal"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE runs (id)")
        connection.execute("INSERT INTO runs VALUES (1)")
        connection.commit()
        made(archive, *sorted(tmp_path.glob("mlflow.db*")))
        connection.execute("UPDATE runs SET id = 2")
        connection.commit()
        left = journal.read_bytes()
    store.unlink()
    journal.write_bytes(left)  # as after a crash
    with pytest.raises(UserError, match=r"mlflow\.db-wal not empty"):
        restore(archive)
    restore(archive, overwrite=True)
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("SELECT id FROM runs").fetchall() == [(1,)]
    assert [path.read_bytes() for path in tmp_path.glob("mlflow.db.before-*-wal")] == [left]


def test_names_like_those_of_locks_and_journals_come_along(tmp_path, archive):
    names = ("flareclust/running/file", "paper/file", "paper-journal/file", "notes-wal")
    for name in names:
        (tmp_path / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / name).write_text(name)
    made(archive, tmp_path / "runs")
    assert {name.removeprefix("0/") for name in manifest_of(archive)["files"]} == {*names}


def test_a_place_with_nothing_to_keep_is_in_nobodys_way(kit, archive):
    """Such as the last backup, where a shell's `*` names it, too."""
    made(archive, kit)
    made(archive, archive, kit, kit.parent / "north" / "daemon_pid.fl")
    shutil.rmtree(kit)
    assert len(restore(archive)) == 1
    assert kit.is_dir()


@pytest.mark.parametrize("name", ["", "..", "/"])
def test_a_folder_is_no_name_for_a_backup(kit, monkeypatch, capsys, name):
    monkeypatch.chdir(kit)
    assert call("backup", name or ".", kit) == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_read_is_noticed_and_a_log_may_grow(kit, archive, monkeypatch):
    copy = shutil.copyfileobj

    def writing(source, out, *rest):
        copy(source, out, *rest)
        if str(source.name).endswith(("store.json", "log.txt")):
            with open(source.name, "ab") as file:
                file.write(b"more")

    monkeypatch.setattr(module.shutil, "copyfileobj", writing)
    (kit / "log.txt").write_text("a line")
    made(archive, kit)
    (kit / "store.json").write_text("{}")
    with pytest.raises(UserError, match=r"store\.json changes while it is read"):
        back_up(archive.with_name("two.tar.gz"), [kit])
    assert os.listdir(archive.parent) == [archive.name]


def test_places_in_use_are_refused_and_put_aside_when_asked(kit, archive, capsys):
    made(archive, kit)
    (kit / "new.txt").write_text("later")
    before = tree(kit)
    with pytest.raises(UserError, match="not empty; nothing was written"):
        restore(archive)
    assert tree(kit) == before
    restore(archive, overwrite=True)
    assert not (kit / "new.txt").exists()
    [aside] = kit.parent.glob("north.before-*")
    assert tree(aside) == before


@pytest.mark.parametrize("what", ["kit", "store"])
def test_restores_in_the_same_second_put_aside_all_that_was_there(kit, tmp_path, archive, what, monkeypatch):
    now = datetime(2026, 11, 29, 12, 0, 0)
    monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda zone=None: now))
    place = kit if what == "kit" else tmp_path / "mlflow.db"
    changing = kit / "new.txt" if what == "kit" else place
    changing.write_text("backed up")
    made(archive, place)
    for number in range(3):
        changing.write_text(f"later {number}")
        restore(archive, overwrite=True)
    assert changing.read_text() == "backed up"
    asides = [place.with_name(f"{place.name}.before-20261129-120000{end}") for end in ("", "-2", "-3")]
    assert [(one / "new.txt" if what == "kit" else one).read_text() for one in asides] == [
        f"later {n}" for n in range(3)
    ]


@pytest.mark.parametrize("below", ["", "local"])
def test_a_folder_with_a_kit_that_runs_is_left_alone(kit, archive, below, monkeypatch):
    """Also where the kit is one of several in it, or only its folder `local` comes back."""
    words = ["python", "-m", "nvflare.private.fed.app.client.client_train", "-m", str(kit)]
    process = SimpleNamespace(info={"cmdline": words}, pid=1)
    made(archive, kit / below if below else kit.parent)
    monkeypatch.setattr("flareclust.sites.running.psutil.process_iter", lambda _: [process])
    with pytest.raises(UserError, match="a process of a kit runs here"):
        restore(archive, overwrite=True)
    assert not [path for path in (*kit.iterdir(), *kit.parent.iterdir()) if ".before-" in path.name]


@pytest.mark.parametrize("account", ["flareclust", "flareclust/accounts/one"])
def test_places_that_lie_in_one_another_on_another_machine_are_refused(tmp_path, archive, account, monkeypatch):
    """As where root has backed up a site of another account, and that account restores."""
    (tmp_path / "other" / account).mkdir(parents=True)
    (tmp_path / "state" / "flareclust" / "results").mkdir(parents=True)
    made(archive, tmp_path / "other" / account)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    shutil.rmtree(tmp_path / "other")
    with pytest.raises(UserError, match="another place of the backup"):
        restore(archive)
    assert not (tmp_path / "other").exists()


def test_an_account_without_a_home_is_one_sentence(tmp_path, archive, monkeypatch):
    (tmp_path / "state" / "flareclust" / "results").mkdir(parents=True)
    made(archive)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "state_folder", homeless)
    with pytest.raises(UserError, match="no home folder"):
        restore(archive)


def test_what_fails_in_the_middle_leaves_everything_as_it_was(kit, tmp_path, archive, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("old")
    made(archive, kit, other)
    (kit / "new.txt").write_text("later")
    before, names, rename = (tree(kit), tree(other)), sorted(os.listdir(tmp_path)), os.rename

    def failing(source, target):
        if Path(target) == other and not Path(source).name.startswith("other.before"):
            raise OSError(28, "No space left on device", str(target))
        rename(source, target)

    monkeypatch.setattr(module.os, "rename", failing)
    with pytest.raises(UserError, match=r"No space left.*as it was"):
        restore(archive, overwrite=True)
    assert (tree(kit), tree(other)) == before
    assert sorted(os.listdir(tmp_path)) == names


def test_another_folder_and_a_dry_run(kit, tmp_path, archive):
    made(archive, kit)
    assert restore(archive, into=tmp_path / "look", dry_run=True) == [
        f"would restore {tmp_path / 'look' / str(kit)[1:]}, from {manifest_of(archive)['made']}"
    ]
    assert not (tmp_path / "look").exists()
    restore(archive, into=tmp_path / "look")
    assert tree(tmp_path / "look" / str(kit)[1:]) == tree(kit)


# Archives that are not as they were
def manifest_of(archive: Path) -> dict:
    with tarfile.open(archive) as packed:
        return json.load(packed.extractfile("manifest.json"))


def forged(archive: Path, members: dict[str, bytes], **changed: object) -> Path:
    """Write the archive anew with these members, and a manifest with these changes."""
    about = manifest_of(archive) | changed
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in (members | {"manifest.json": json.dumps(about).encode()}).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return archive


HASH = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of b"foo"
FOO = [HASH, 0o600, 0]


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("0/../../out", {"files": {"0/../../out": FOO}}),
        ("0/../out", {"files": {"0/../out": FOO}, "folders": {"0": 0o700, "0/..": 0o700}}),
        ("/out", {"files": {"/out": FOO}}),
        ("1/out", {"files": {"1/out": FOO}, "folders": {"1": 0o700}}),
        ("0/a/out", {"files": {"0/a/out": FOO}, "folders": {"0": 0o700}, "links": {"0/a": "/tmp"}}),
        ("0/a/out", {"files": {"0/a/out": FOO}, "folders": {"0": 0o700, "0/a": 0o700}, "links": {"0/a": "/tmp"}}),
        ("0/out", {"files": {"0/out": FOO}, "places": {"0": "relative"}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": FOO}, "places": {"0": "/tmp/../tmp/none"}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": FOO}, "places": {"0": "/tmp/none\0"}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": FOO}, "places": {"0": "/"}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": ["0" * 64, 0o600, 0]}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": FOO, "0/gone": FOO}, "folders": {"0": 0o700}}),
        ("0/out", {"files": {"0/out": 5}, "folders": {"0": 0o700}}),
    ],
    ids=[
        "up",
        "up by a folder",
        "root",
        "no place",
        "a link",
        "a link as folder",
        "relative",
        "place with up",
        "place with NUL",
        "the root",
        "hash",
        "more",
        "less",
        "form",
    ],
)
def test_members_that_escape_or_differ_are_refused_before_anything_is_written(kit, tmp_path, archive, name, about):
    made(archive, kit)
    shutil.rmtree(kit)
    forged(archive, {name: b"foo"}, **({"links": {}} | about))
    names = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match="damaged, or is no backup"):
        restore(archive)
    assert sorted(os.listdir(tmp_path)) == names


@pytest.mark.parametrize("how", ["cut", "bit", "text", "foreign", "another version"])
def test_a_damaged_or_foreign_archive_gets_one_error(kit, archive, how, capsys):
    (kit / "big").write_bytes(os.urandom(200_000))
    made(archive, kit)
    shutil.rmtree(kit)
    content = bytearray(archive.read_bytes())
    if how == "cut":
        archive.write_bytes(content[: len(content) // 2])
    elif how == "bit":
        content[len(content) // 2] ^= 1
        archive.write_bytes(content)
    elif how == "text":
        archive.write_text("no archive")
    elif how == "foreign":
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(__file__, "0/file")
    else:
        forged(archive, {}, form=2, flareclust="9.8.7")
    assert call("restore", archive) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert ("9.8.7" if how == "another version" else "damaged, or is no backup") in printed
    assert not kit.exists()


def test_a_foreign_file_is_named_and_a_missing_path_too(tmp_path, archive, capsys):
    assert call("restore", tmp_path / "none.tar.gz") == 2
    assert "cannot be read" in capsys.readouterr().err
    archive.parent.mkdir()
    assert call("backup", archive, tmp_path / "none") == 2
    assert "is not there" in capsys.readouterr().err
    assert call("backup", archive) == 2
    assert "nothing to back up" in capsys.readouterr().err
    assert not archive.exists()


def test_the_command_says_that_private_keys_are_in_it(kit, archive, capsys):
    archive.parent.mkdir()
    assert call("backup", archive, kit) == 0
    assert "private keys" in capsys.readouterr().out


# Privacy accounts
@pytest.mark.parametrize("account", [None, "/named"])
def test_a_site_spends_nothing_after_a_restore_until_its_operator_has_spoken(tmp_path, archive, account):
    rows = tmp_path / "rows.npy"
    rows.touch()
    said = {} if account is None else {"account": f"{tmp_path}{account}"}
    local = kit_of(tmp_path, "north", rows, **said)
    spend(local, "a", 0.25)
    made(archive, local.parent)
    spend(local, "b", 0.5)
    for folder in (local.parent, tmp_path / "state", tmp_path / "named"):
        shutil.rmtree(folder, ignore_errors=True)
    lines = restore(archive)
    [ledger] = [line for line in lines if "ledger.db" in line]
    assert "--spent-since" in ledger
    with pytest.raises(Refusal, match="from a backup"):
        session_of(local, "north", "c", private=True)
    assert call("site", "budget", local.parent, "--spent-since", "all") == 0
    assert session_of(local, "north", "c", private=True) is not None
    assert stat.S_IMODE((accounts() if account is None else tmp_path / "named").stat().st_mode) == 0o700


def test_a_site_spends_nothing_after_another_program_has_unpacked_a_backup_either(tmp_path, archive):
    rows = tmp_path / "rows.npy"
    rows.touch()
    local = kit_of(tmp_path, "north", rows)
    (local.parent / "startup" / "fed_client.json").touch()
    spend(local, "a", 0.25)
    made(archive, local.parent)
    assert session_of(local, "north", "b", private=True) is not None, "the ledger itself is as it was"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "by hand", filter="data")
        places = json.load(packed.extractfile("manifest.json"))["places"]
    for number, place in places.items():
        target = state_folder() if place is None else Path(place)
        shutil.rmtree(target)
        shutil.move(tmp_path / "by hand" / number, target)
    with pytest.raises(Refusal, match="from a backup"):
        session_of(local, "north", "c", private=True)
    assert call("site", "budget", local.parent, "--spent-since", "0.5") == 0
    assert session_of(local, "north", "c", private=True) is not None


@pytest.mark.parametrize(("same", "spent"), [(True, 0.75), (False, 0.25)], ids=["same", "another"])
def test_no_statement_forgets_what_is_in_the_ledger_that_is_put_aside(tmp_path, archive, same, spent):
    """Such as where a backup is restored twice, and jobs have run in between."""
    rows = tmp_path / "rows.npy"
    rows.touch()
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a", 0.25)
    made(archive, local.parent)
    if not same:
        shutil.rmtree(tmp_path / "state")
        shutil.rmtree(local.parent)
        kit_of(tmp_path, "north", rows)
    spend(local, "b", 0.5)
    restore(archive, overwrite=True)
    with pytest.raises(Refusal, match="from a backup"):
        session_of(local, "north", "c", private=True)
    assert call("site", "budget", local.parent, "--spent-since", "0") == 0
    session = session_of(local, "north", "c", private=True)
    assert session is not None
    assert session.ledger.spent().total == pytest.approx(spent)


def test_a_ledger_that_cannot_be_marked_is_not_restored(tmp_path, archive, monkeypatch):
    (tmp_path / "rows.npy").touch()
    local = kit_of(tmp_path, "north", tmp_path / "rows.npy")
    spend(local, "a", 0.25)
    made(archive, local.parent)
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(local.parent)

    def full(ledger):
        raise Refusal("cannot write its privacy ledger (not writable, or the disk is full)")

    monkeypatch.setattr(module.Ledger, "mark_restored", full)
    with pytest.raises(UserError, match="disk is full"):
        restore(archive)
    assert not local.exists()
    assert not [path for path in tmp_path.rglob("*") if path.name == "ledger.db"]


@pytest.mark.parametrize("kept", [slice(100), slice(-1000, None)], ids=["cut", "no store"])
def test_a_damaged_ledger_comes_back_and_refuses_by_itself(tmp_path, archive, kept):
    (tmp_path / "rows.npy").touch()
    local = kit_of(tmp_path, "north", tmp_path / "rows.npy")
    spend(local, "a", 0.25)
    made(archive, local.parent)
    about = manifest_of(archive)
    with tarfile.open(archive) as packed:
        found = {name: packed.extractfile(name).read() for name in about["files"]}
    [name] = [name for name in found if name.endswith("ledger.db")]
    found[name] = found[name][kept]
    digest = hashlib.sha256(found[name]).hexdigest()
    forged(archive, found, files=about["files"] | {name: [digest, 0o600, 0]})
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(local.parent)
    restore(archive)
    with pytest.raises(Refusal, match="privacy ledger that is damaged"):
        session_of(local, "north", "b", private=True)


def test_a_named_account_comes_along_where_the_kit_cannot_remember_it(tmp_path, archive, monkeypatch):
    (tmp_path / "rows.npy").touch()
    local = kit_of(tmp_path, "north", tmp_path / "rows.npy", account="../../named")

    def read_only(file, *_, **__):
        raise UserError(f"{file} cannot be written: Read-only file system")

    monkeypatch.setattr("flareclust.sites.account.write_json", read_only)
    spend(local, "a", 0.25)
    made(archive, local.parent)
    for folder in (local.parent, tmp_path / "state", tmp_path / "named"):
        shutil.rmtree(folder, ignore_errors=True)
    restore(archive)
    with pytest.raises(Refusal, match="from a backup"):
        session_of(local, "north", "b", private=True)


def test_a_state_with_nothing_but_locks_is_not_in_the_way_of_a_restore(kit, tmp_path, archive):
    (tmp_path / "state" / "flareclust" / "running").mkdir(parents=True)
    made(archive, kit)
    shutil.rmtree(kit)
    restore(archive)
    assert kit.is_dir()


def test_a_backup_that_takes_the_place_of_another_meanwhile_is_not_the_one_that_is_unpacked(
    kit, tmp_path, archive, monkeypatch
):
    made(archive, kit)
    (kit / "startup" / "start.sh").write_text("another")
    other = made(archive.with_name("other.tar.gz"), kit)
    shutil.rmtree(kit)
    staged = module._staged

    def replaced(*arguments):
        if other.exists():
            other.replace(archive)
        return staged(*arguments)

    monkeypatch.setattr(module, "_staged", replaced)
    restore(archive)
    assert not other.exists()
    assert (kit / "startup" / "start.sh").read_text() == "#!/bin/sh\n"
