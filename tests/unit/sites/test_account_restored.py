"""A ledger that is older than the truth: no job spends from it until the operator has stated what is missing."""

import shutil
from pathlib import Path

import pytest

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp.accounting import rho_of
from flareclust.privacy.dp.ledger import Ledger
from flareclust.sites.account import accounts, session_of
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.kit import read_json, write_json
from tests.command_line import call
from tests.unit.sites.account_cases import kit_of, spend

DELTA, BUDGET = 1e-5, 5


def ledger() -> Ledger:
    [folder] = accounts().iterdir()
    return Ledger(folder / "ledger.db")


def copied(to: Path) -> Path:
    """Return a copy of the ledger as it is now."""
    return Path(shutil.copy(ledger().path, to))


@pytest.fixture
def restored(tmp_path, rows) -> Path:
    """A kit whose ledger is marked as from a backup, after one job."""
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a", 0.01)
    ledger().mark_restored()
    return local


def test_no_job_spends_from_a_ledger_of_a_backup(restored, capsys):
    with pytest.raises(Refusal, match=r"from a backup.*must state it"):
        session_of(restored, "north", "b", private=True)
    with pytest.raises(Refusal, match="from a backup"):
        ledger().spend("b", "cells", 0.01, 9, 9)
    assert ledger().spent().total == 0.01
    assert call("site", "budget", restored.parent) == 0
    assert "no job may spend from it" in capsys.readouterr().out
    assert call("site", "check", restored.parent) == 2


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["1", "0.5"], rho_of(1, DELTA) + rho_of(0.5, DELTA)),
        (["0"], 0.0),
        (["all"], rho_of(BUDGET, DELTA) - 0.01),
    ],
)
def test_what_the_operator_states_is_charged_and_jobs_go_on(restored, words, missing):
    stated = [word for one in words for word in ("--spent-since", one)]
    assert call("site", "budget", restored.parent, *stated) == 0
    assert ledger().spent().total == pytest.approx(0.01 + missing)
    assert session_of(restored, "north", "b", private=True) is not None


@pytest.mark.parametrize("words", [["-1"], ["nan"], ["some"], ["1", "all"]])
def test_what_is_no_amount_is_refused_and_nothing_changes(restored, words):
    stated = [f"--spent-since={one}" for one in words]
    assert call("site", "budget", restored.parent, *stated) == 2
    assert ledger().restored
    assert ledger().spent().total == 0.01


def test_a_kit_knows_an_older_copy_of_its_ledger(tmp_path, rows):
    """Also where no command of ours has brought it back."""
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    old = copied(tmp_path / "old.db")
    spend(local, "b")
    session_of(local, "north", "c", private=True)  # the kit sees the ledger when a job begins
    shutil.copy(old, ledger().path)
    with pytest.raises(Refusal, match="older than what its rows have spent"):
        session_of(local, "north", "d", private=True)
    assert call("site", "budget", local.parent, "--spent-since", "0") == 0
    assert ledger().spent().total == pytest.approx(0.5), "less was charged than the kit has seen"
    assert session_of(local, "north", "d", private=True) is not None


def test_a_kit_knows_an_older_copy_also_after_its_rows_have_moved(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows, account=str(tmp_path / "named"))
    old = tmp_path / "old.db"
    spend(local, "a")
    shutil.copy(tmp_path / "named" / "ledger.db", old)
    spend(local, "b")
    session_of(local, "north", "c", private=True)
    moved = Path(shutil.move(rows, tmp_path / "moved.npy"))
    config = local / CONFIG_FILE
    config.write_text(config.read_text().replace(str(rows), str(moved)))
    shutil.copy(old, tmp_path / "named" / "ledger.db")
    with pytest.raises(Refusal, match="older than what its rows have spent"):
        session_of(local, "north", "d", private=True)
    assert call("site", "budget", local.parent, "--spent-since", "0") == 0
    assert Ledger(tmp_path / "named" / "ledger.db").spent().total == pytest.approx(0.5)


def test_a_record_of_an_earlier_version_is_read(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    record = local / "flareclust_account.json"
    kept = {place: {"folder": one["folder"], "ledger": one["ledger"]} for place, one in read_json(record).items()}
    write_json(record, kept)
    assert spend(local, "b") == 0.25
