"""What the commands of a site say about its privacy budget."""

import json
import shutil

from flareclust.privacy.dp.ledger import _Entry
from flareclust.privacy.policy import Policy
from flareclust.sites.account import _MEMORY, accounts
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.policy_file import write_policy
from tests.command_line import call
from tests.unit.sites.account_cases import kit_of, spend


# What the operator sees
def test_check_show_and_budget_say_whose_budget_it_is(tmp_path, rows, capsys):
    kit = kit_of(tmp_path, "north", rows).parent
    assert call("site", "check", kit) == 0
    shown = capsys.readouterr().out
    assert f"budget of: the rows in {rows}" in shown
    assert "made by the first job" in shown
    spend(kit / "local", "job-1", 0.01)
    spend(kit_of(tmp_path, "south", rows), "job-2", 0.02, site="south")
    [folder] = accounts().iterdir()
    for words in (("check", kit), ("policy", kit, "--show")):
        assert call("site", *words) == 0
        shown = capsys.readouterr().out
        assert f"ledger: {folder / 'ledger.db'}" in shown
        assert f"shared with: south in {tmp_path / 'south'}" in shown
        assert "of 5 in 2 jobs" in shown
    assert call("site", "budget", kit) == 0
    shown = capsys.readouterr().out
    assert [word in shown for word in ("job-1", "job-2", "cells", str(rows))] == [True] * 4
    assert call("site", "budget", kit, "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert [(line["job"], line["site"]) for line in reported["spendings"]] == [("job-1", "north"), ("job-2", "south")]
    assert (
        reported["spendings"][0]["epsilon"]
        == reported["spendings"][0]["total"]
        < reported["spendings"][1]["total"]
        == reported["spent"]
    )


def test_init_says_that_the_rows_have_a_budget_already(tmp_path, rows, capsys):
    new = tmp_path / "new"
    for folder in ("startup", "local"):
        (new / folder).mkdir(parents=True)
    assert call("site", "init", new, "--rows", rows) == 0
    assert "budget" not in capsys.readouterr().out
    spend(kit_of(tmp_path, "north", rows), "a")
    (new / "local" / CONFIG_FILE).unlink()
    assert call("site", "init", new, "--rows", rows) == 0
    assert f"used by north in {tmp_path / 'north'}" in capsys.readouterr().out


def test_nothing_is_written_by_looking(tmp_path, rows, state):
    kit = kit_of(tmp_path, "north", rows).parent
    for words in (("check", kit), ("policy", kit, "--show"), ("budget", kit)):
        assert call("site", *words) == 0
    assert not state.exists()
    assert not (kit / "local" / _MEMORY).exists()


def test_a_lost_account_is_an_error_of_check_with_its_place(tmp_path, rows, capsys):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    shutil.rmtree(folder)
    assert call("site", "check", local.parent) == 2
    assert str(folder) in capsys.readouterr().err
    assert call("site", "budget", local.parent) == 0
    assert "no job may spend from it" in capsys.readouterr().out


def test_a_site_without_differential_privacy_has_no_budget(tmp_path, rows, capsys):
    local = kit_of(tmp_path, "north", rows)
    write_policy(local, Policy())
    assert call("site", "budget", local.parent) == 2
    assert "no differential_privacy" in capsys.readouterr().err
    assert _Entry._fields == ("at", "job", "site", "what", "rho")
