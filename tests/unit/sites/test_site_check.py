"""`flareclust site init` and `check`: a site is prepared by commands, and its rows are described."""

import json
import os
import re
import stat
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.privacy.policy import Policy
from flareclust.sites.check import check, local_of
from flareclust.sites.class_list import of_sites
from flareclust.sites.config import write_site
from flareclust.sites.policy_file import write_policy
from flareclust.sites.rows import SiteData
from tests.command_line import call
from tests.kit_certificates import write_certificates
from tests.unit.sites.check_cases import rows, wrong


def test_a_site_is_prepared_by_four_commands(kit, capsys):
    rng = np.random.default_rng(0)
    file = rows(kit, crp=rng.normal(size=30), iron=rng.normal(size=30))
    assert call("site", "init", kit, "--rows", file, "--columns", "iron, crp") == 0
    assert capsys.readouterr().out.strip() == str(kit / "local" / "flareclust.yaml")
    assert SiteData.of(kit / "local", "north").columns == ("iron", "crp")
    assert call("site", "check", kit) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "north: 30 rows" in printed
    assert f"{len(of_sites())} classes of flareclust's jobs are not listed in resources.json.default" in printed
    assert call("site", "allow", kit) == 0
    listed = json.loads((kit / "local" / "resources.json.default").read_text())["class_allow_list"]
    assert listed == ["hospital.Own", *of_sites()]
    capsys.readouterr()
    assert call("site", "check", kit) == 0
    assert "flareclust site policy" in capsys.readouterr().out
    assert call("site", "policy", kit) == 0
    capsys.readouterr()
    assert call("site", "check", kit) == 0
    assert "nothing odd" in capsys.readouterr().out


@pytest.mark.parametrize(("days", "code", "said"), [(-1, 2, "ended"), (9, 0, "ends"), (99, 0, None)])
def test_a_certificate_that_has_ended_is_an_error_and_one_that_will_soon_a_hint(kit, capsys, days, code, said):
    write_site(local_of(kit), str(rows(kit, crp=[1.0, 4.0, 4.0])))
    now = datetime.now(timezone.utc)
    write_certificates(kit, root=(now - timedelta(days=99), now + timedelta(days=days)))
    assert call("site", "check", kit) == code
    printed = "".join(capsys.readouterr())
    assert (said is not None) == bool(re.search(r"\b(ended|ends)\s+20", printed))
    checked = check(kit)
    found = [*checked.errors, *(hint for hint in checked.hints if "certificate" in hint)]
    assert [f" {said} 20" in text for text in found] == [True] * (said is not None)


def test_columns_are_described_by_hand_worked_numbers(kit):
    write_site(local_of(kit), str(rows(kit, crp=[1.0, 4.0, 4.0], iron=[2.0, 2.0, 8.0])))
    checked = check(kit)
    assert (checked.name, checked.rows.number, checked.errors) == ("north", 3, [])
    assert [(c.name, c.different, c.minimum, c.mean, c.largest) for c in checked.rows.columns] == [
        ("crp", 2, 1.0, 3.0, 4.0),
        ("iron", 2, 2.0, 4.0, 8.0),
    ]


def test_dropped_rows_are_counted_for_the_site(kit):
    file = rows(kit, age=[*range(30, 40), ""], crp=[1.5] * 11)
    (kit / "local" / "schema.yaml").write_text("missing: drop-rows\ncolumns: {age: number, crp: number}")
    (kit / "local" / "flareclust.yaml").write_text(f"path: {file}\nschema: schema.yaml\n")
    assert check(kit).facts["dropped"] == "1 of 11 rows was left out, since a cell is missing (missing: drop-rows)"


def test_odd_columns_are_named(kit):
    rng = np.random.default_rng(0)
    n = 40
    write_site(
        local_of(kit),
        str(
            rows(
                kit,
                patient=rng.permutation(n) + 1000,
                crp=rng.normal(size=n),
                iron=rng.normal(size=n),
                platelets=1e4 * rng.normal(size=n),
                site=np.full(n, 7),
            )
        ),
    )
    hints = " ".join(check(kit).hints)
    assert "one value only in 'site'" in hints
    assert "'patient': integers that all differ" in hints
    assert "'platelets' varies more than 30 times as much" in hints
    assert "'crp'" not in hints


@pytest.mark.parametrize(("unit", "hinted"), [("mg/l", False), ("u/l", True)])
def test_columns_that_jobs_by_the_schema_scale_outweigh_none(kit, unit, hinted):
    rng = np.random.default_rng(0)
    file = rows(kit, crp=rng.random(30), iron=rng.random(30), platelets=1e4 * rng.random(30))
    columns = ", ".join(
        f"{name}: {{type: number, unit: {unit if name == 'crp' else 'u/l'}}}" for name in ("crp", "iron", "platelets")
    )
    (kit / "local" / "schema.yaml").write_text(f"columns: {{{columns}}}")
    (kit / "local" / "flareclust.yaml").write_text(f"path: {file}\nschema: schema.yaml\n")
    checked = check(kit)
    assert checked.rows.number == 30
    assert ("varies more than 30 times" in " ".join(checked.hints)) == hinted


def test_repeated_rows_and_columns_without_names_are_hinted_at(kit):
    np.save(kit / "local" / "rows.npy", np.repeat([[1.0, 2.5], [3.0, 4.5]], 10, axis=0))
    write_site(local_of(kit), "rows.npy")
    hints = " ".join(check(kit).hints)
    assert "the columns have no names" in hints
    assert "18 of 20 rows repeat another one" in hints


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("crp,iron\n1,\n2,3\n", "north cannot use its rows: .*1 cell is missing.*'iron'"),
        ("crp,sex\n1,f\n2,m\n", "north cannot use its rows: .*'sex' is not numeric"),
        ("crp,crp\n1,2\n2,3\n", "north cannot use its rows: .*'crp' more than once"),
    ],
)
def test_what_a_job_would_refuse_is_an_error(kit, text, words):
    file = kit.parent / "north.csv"
    file.write_text(text)
    write_site(local_of(kit), str(file))
    wrong(kit, words)


def test_a_pattern_that_would_read_labels_as_rows_is_an_error(kit):
    rows(kit, crp=[1.0, 4.0, 4.0], iron=[2.0, 2.0, 8.0])
    (kit / "local" / "flareclust.yaml").write_text(f"path: {kit.parent}/*.csv\nlabels: {kit.parent}\n")
    wrong(kit, r"north has a local/.*labels folder, so the next job would read labels as rows")


def test_what_is_no_kit_or_has_no_rows_says_what_to_do(kit, tmp_path, capsys):
    with pytest.raises(UserError, match=r"is no kit: expected a folder with startup/ and local/"):
        local_of(tmp_path)
    wrong(kit, r"north has no local/flareclust\.yaml")
    write_site(local_of(kit), "absent.csv")
    wrong(kit, r"absent\.csv: no such file")
    with pytest.raises(UserError, match="is there already"):
        write_site(local_of(kit), "other.csv")
    assert call("site", "check", tmp_path) == 2
    assert "is no kit" in capsys.readouterr().err


# --- the configuration that is written, and what is reported beside the rows ---
def test_init_takes_patterns_ids_roots_and_formats_and_keeps_the_file_private(kit, monkeypatch):
    for part in (1, 2):
        (kit.parent / f"part-{part}.txt").write_text("patient,crp,iron\n" + f"p{part},{part}.5,{part}\n" * 3)
    monkeypatch.chdir(kit.parent)
    options = ("--id", "patient", "--root", ".", "--format", "csv", "--columns", "iron,crp")
    mask = os.umask(0)
    try:
        assert call("site", "init", kit, "--rows", "part-?.txt", *options) == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE((kit / "local" / "flareclust.yaml").stat().st_mode) == 0o600
    data = SiteData.of(kit / "local", "north")
    assert data.root == kit.parent
    table = data.table()
    assert table.columns == ("iron", "crp")
    assert list(table.ids) == ["p1"] * 3 + ["p2"] * 3


def test_init_refuses_a_format_that_it_does_not_know(kit, capsys):
    assert call("site", "init", kit, "--rows", "x.dat", "--format", "cvs") == 2
    assert "unknown format 'cvs' (did you mean 'csv'" in capsys.readouterr().err


def test_check_tells_files_ids_limits_policies_and_versions(kit, capsys):
    rng = np.random.default_rng(0)
    for part in (1, 2):
        lines = [f"p{i % 9}-{part},{x:.3f},{y:.3f}" for i, (x, y) in enumerate(rng.normal(size=(10, 2)))]
        (kit.parent / f"part-{part}.csv").write_text("\n".join(["patient,crp,iron", *lines]) + "\n")
    local = kit / "local"
    (local / "flareclust.yaml").write_text(
        f"path: {kit.parent}/part-*.csv\nid: patient\nmin_rows: 5\nmax_rows: 50\nmemory: 1MB\nlabels: /secure/labels\n"
    )
    (local / "flareclust.yaml").chmod(0o644)
    (kit / "startup" / "client.key").write_text("")
    (kit / "startup" / "client.key").chmod(0o640)
    rights = {"project_admin": "any", "lead": {"submit_job": "any", "byoc": "o:site"}, "member": {"view": "any"}}
    (local / "authorization.json.default").write_text(json.dumps({"permissions": rights}))
    checked = check(kit)
    assert checked.rows.number == 20
    assert [column.name for column in checked.rows.columns] == ["crp", "iron"]
    assert checked.facts["files"] == "2"
    assert checked.facts["rows asked for"] == "at least 5, at most 50"
    assert checked.facts["kept"] == "in memory, 0.0 MB (1 MB of memory allowed)"
    assert checked.facts["ids"] == "in 'patient'"
    assert checked.facts["labels"] == "in /secure/labels"
    assert checked.facts["classes"] == f"0 of {len(of_sites())} of flareclust, 1 others"
    assert checked.facts["error texts"] == "may go to the server"
    assert checked.facts["code in jobs"] == "from project_admin (any), lead (o:site)"
    assert checked.facts["policy"] == "none"
    assert checked.facts["other filters"] == "none"
    assert checked.facts["versions"].startswith("flareclust ")
    assert [hint.partition(";")[0] for hint in checked.hints if "same id" in hint] == [
        "2 of 20 rows were kept beside an earlier one with the same id"
    ]
    assert (
        "other accounts of this machine can read local/flareclust.yaml, startup/client.key: chmod 600" in checked.hints
    )
    assert call("site", "check", kit) == 0
    assert "code in jobs: from project_admin (any), lead (o:site)" in capsys.readouterr().out


def test_a_kit_that_is_closed_is_reported_as_such(kit):
    write_site(local_of(kit), str(rows(kit, crp=[1.5, 2.5, 3.5], iron=[1.0, 2.5, 2.0])))
    (kit / "local" / "authorization.json").write_text(json.dumps({"permissions": {"lead": {"byoc": "none"}}}))
    foreign = {"path": "hospital.Noise", "args": {}}
    scope = {"name": "default", "task_result_filters": [foreign]}
    (kit / "local" / "privacy.json").write_text(json.dumps({"scopes": [scope], "default_scope": "default"}))
    write_policy(kit / "local", Policy(min_count=6))
    (kit / "local" / "resources.json").write_text(
        json.dumps({"class_allow_list": of_sites(), "allow_log_streaming": False})
    )
    (kit / "startup" / "client.key").write_text("")
    (kit / "startup" / "client.key").chmod(0o600)
    checked = check(kit)
    assert checked.hints == []
    policies = [checked.facts[key] for key in ("classes", "error texts", "code in jobs", "other filters")]
    all_of_ours = f"{len(of_sites())} of {len(of_sites())} of flareclust, 0 others"
    assert policies == [all_of_ours, "stay here", "from nobody", "hospital.Noise"]


def test_rows_beyond_the_memory_are_described_alike_and_counted_up_to_a_bound(kit, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), np.arange(500), rng.integers(0, 3, 500), np.full(500, 7.0)])
    np.save(kit / "local" / "rows.npy", X)
    write_site(local_of(kit), "rows.npy")
    whole = check(kit)
    assert [column.different for column in whole.rows.columns] == [500, 500, 3, 1]
    assert not any(column.more for column in whole.rows.columns)
    monkeypatch.setattr("flareclust.core.chunks.PIECE", 50 * 32)
    monkeypatch.setattr("flareclust.sites.check._MOST_DIFFERENT", 100)
    with (kit / "local" / "flareclust.yaml").open("a") as file:
        file.write("memory: 1000\n")
    bounded = check(kit)
    assert bounded.facts["kept"].startswith("on disk, ")
    assert [(column.different, column.more) for column in bounded.rows.columns] == [
        (150, True),
        (150, True),
        (3, False),
        (1, False),
    ]
    for one, other in zip(whole.rows.columns, bounded.rows.columns, strict=True):
        assert (one.minimum, one.mean, one.largest, one.deviation) == (
            other.minimum, other.mean, other.largest, other.deviation
        )  # fmt: skip
        assert one.numbers_rows is other.numbers_rows
    assert [hint for hint in bounded.hints if "integers that all differ" in hint] != []
    assert list((kit / "local").glob("tmp*")) == []


@pytest.mark.parametrize(("own", "asked"), [(1, "at least 10"), (15, "at least 15, at most 50")])
def test_the_rows_asked_for_are_those_of_configuration_and_policy(kit, own, asked):
    (kit.parent / "rows.csv").write_text("\n".join(["x,y", *(f"{i},{i % 3}" for i in range(20)), ""]))
    most = "max_rows: 50\n" if own > 1 else ""
    (kit / "local" / "flareclust.yaml").write_text(f"path: {kit.parent}/rows.csv\nmin_rows: {own}\n{most}")
    write_policy(kit / "local", Policy(min_count=10))
    assert check(kit).facts["rows asked for"] == asked
