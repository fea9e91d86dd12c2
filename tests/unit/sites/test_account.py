"""Which account of the privacy budget belongs to a table, whatever kits and places it has."""

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp.ledger import Ledger
from flareclust.sites import account as module
from flareclust.sites.account import _MEMORY, accounts, budget_of, session_of
from flareclust.sites.config import CONFIG_FILE
from tests.unit.sites.account_cases import configure, kit_of, renewed, spend


def gone(local: Path, how: str, state: Path) -> None:
    [folder] = accounts().iterdir()
    if how == "file":
        (folder / "ledger.db").unlink()
    elif how == "folder":
        shutil.rmtree(folder)
    elif how == "another":
        (folder / "ledger.db").unlink()
        Ledger(folder / "ledger.db").make()
    else:
        shutil.move(state, state.with_name("elsewhere"))


# Who shares an account
def test_a_kit_renewed_as_documented_goes_on_with_what_was_spent(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    assert spend(renewed(local, tmp_path / "kits-2028" / "north"), "b") == 0.25


def test_a_second_kit_a_copied_kit_and_a_link_share_the_account_of_the_table(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    assert spend(kit_of(tmp_path, "other", rows), "b", site="other") == 0.25
    shutil.copytree(local.parent, tmp_path / "copy")
    assert spend(tmp_path / "copy" / "local", "c") == 0.5
    (tmp_path / "link.npy").symlink_to(rows)
    assert spend(kit_of(tmp_path, "linked", tmp_path / "link.npy"), "d") == 0.75
    (tmp_path / "folder").symlink_to(rows.parent)
    assert spend(kit_of(tmp_path, "linked-folder", tmp_path / "folder" / "rows.npy"), "e") == 1.0
    assert len(list(accounts().iterdir())) == 1


def test_new_rows_in_the_same_place_do_not_reset_the_account(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    np.save(rows, np.zeros((99, 2)))
    assert spend(local, "b") == 0.25


def test_a_folder_of_parts_and_a_part_of_it_are_not_spent_from_twice(tmp_path, state):
    folder = tmp_path / "visits.parquet"
    folder.mkdir()
    for number in range(2):
        pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 2.0]}), folder / f"part.{number}.parquet")
    spend(kit_of(tmp_path, "north", folder), "a")
    with pytest.raises(Refusal, match="belong to another privacy account as well"):
        spend(kit_of(tmp_path, "part", folder / "part.1.parquet"), "b")


def test_a_file_that_another_table_has_is_not_spent_from_twice(tmp_path, rows):
    spend(kit_of(tmp_path, "north", rows), "a")
    [folder] = accounts().iterdir()
    pattern = kit_of(tmp_path, "pattern", rows.parent / "*.npy")
    hard = tmp_path / "hard.npy"
    os.link(rows, hard)
    for local in (pattern, kit_of(tmp_path, "hard", hard)):
        with pytest.raises(Refusal, match="belong to another privacy account as well") as caught:
            spend(local, "b")
        assert str(tmp_path) not in str(caught.value)
        assert str(folder) in caught.value.here
        configure(local, account=folder)
        assert spend(local, "b") >= 0.25


def test_a_copy_of_the_rows_elsewhere_is_another_table(tmp_path, rows):
    spend(kit_of(tmp_path, "north", rows), "a")
    shutil.copy(rows, tmp_path / "copied.npy")
    assert spend(kit_of(tmp_path, "other", tmp_path / "copied.npy"), "b") == 0


def test_an_account_that_two_tables_name_is_shared(tmp_path, rows):
    day = rows.with_name("tuesday.npy")
    np.save(day, np.ones((9, 2)))
    spend(kit_of(tmp_path, "north", rows, account="cohort"), "a")
    assert spend(kit_of(tmp_path, "south", day, account="cohort"), "b", site="south") == 0.25
    assert spend(kit_of(tmp_path, "unnamed", rows), "c") == 0.5, (
        "a kit that names none finds it by the place of its rows"
    )


def test_only_the_owner_reads_an_account(tmp_path, rows, state):
    old = os.umask(0)
    try:
        local = kit_of(tmp_path, "north", rows)
        spend(local, "a")
    finally:
        os.umask(old)
    [folder] = accounts().iterdir()
    for path in (state, state / "flareclust", accounts(), folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for path in (*folder.iterdir(), local / _MEMORY):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("how", ["file", "folder", "state", "another"])
@pytest.mark.parametrize("kit", ["same", "renewed"])
def test_a_lost_account_is_refused_until_it_is_back(tmp_path, rows, state, how, kit):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    shutil.copytree(state, tmp_path / "backup")
    if kit == "renewed":
        local = renewed(local, tmp_path / "new" / "north")
    gone(local, how, state)
    for _ in range(2):
        with pytest.raises(Refusal, match=r"privacy (ledger|account)") as caught:
            spend(local, "b")
        assert str(tmp_path) not in str(caught.value)
    assert budget_of(local, "north").trouble is not None
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(tmp_path / "backup", state)
    assert spend(local, "b") == 0.25


def test_a_ledger_that_is_lost_while_a_job_runs_is_not_made_anew(tmp_path, rows):
    terms = session_of(kit_of(tmp_path, "north", rows), "north", "a", private=True)
    assert terms is not None
    assert terms.ledger is not None
    terms.ledger.spend("a", "cells", 0.25, 1.0, 1.0)
    [folder] = accounts().iterdir()
    (folder / "ledger.db").unlink()
    for use in (lambda: terms.ledger.spend("a", "cells", 0.25, 1.0, 1.0), terms.ledger.spent):
        with pytest.raises(Refusal, match="has no privacy ledger"):
            use()
    assert not (folder / "ledger.db").exists()


def test_rows_that_moved_need_the_word_of_the_operator(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    moved = rows.rename(rows.with_name("moved.npy"))
    (local / CONFIG_FILE).write_text(f"path: {moved}\n")
    with pytest.raises(Refusal, match="its operator must name the account") as caught:
        spend(local, "b")
    assert str(folder) in caught.value.here
    configure(local, account=folder)
    assert spend(local, "b") == 0.25
    (local / CONFIG_FILE).write_text(f"path: {moved}\naccount: fresh\n")
    with pytest.raises(Refusal, match="privacy ledger"):
        spend(local, "c")


def test_an_account_may_be_moved_and_named(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    shutil.move(folder, tmp_path / "safe")
    configure(local, account=tmp_path / "safe")
    assert spend(local, "b") == 0.25
    assert spend(kit_of(tmp_path, "unnamed", rows), "c") == 0.5


def test_a_kit_whose_local_cannot_be_written_must_name_its_account(tmp_path, rows, monkeypatch):
    def refuse(file, *args, **kwargs):
        raise module.UserError(f"{file} cannot be written: Read-only file system")

    monkeypatch.setattr(module, "write_json", refuse)
    local = kit_of(tmp_path, "north", rows)
    with pytest.raises(Refusal, match="must name one as account"):
        spend(local, "a")
    configure(local, account=tmp_path / "volume" / "account")
    assert spend(local, "a") == 0
    shutil.copytree(tmp_path / "volume", tmp_path / "backup")
    (tmp_path / "volume" / "account" / "ledger.db").unlink()
    with pytest.raises(Refusal, match="has no privacy ledger"):
        spend(local, "b")


@pytest.mark.parametrize("name", ["../privacy", "..", ".hidden", "[1]"])
def test_odd_accounts_are_refused(tmp_path, rows, name):
    local = kit_of(tmp_path, "north", rows, account=name)
    with pytest.raises(Refusal, match="account is"):
        spend(local, "a")


def test_a_spoilt_memory_refuses(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    (local / _MEMORY).write_text("{")
    with pytest.raises(Refusal, match="does not know which privacy account"):
        spend(local, "b")
