"""`flareclust site`: an operator learns before the first job what a job would say, and what it would not."""

import json
import os
import re
import stat

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.cli.main import main
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.sites.check import check, local_of
from flareclust.sites.class_list import of_server, of_sites
from flareclust.sites.config import write_site
from flareclust.sites.policy_file import write_policy
from flareclust.sites.rows import SiteData


@pytest.fixture
def kit(tmp_path):
    """A site's kit as provisioning makes it, and a file with its rows."""
    folder = tmp_path / "prod_00" / "north"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    (folder / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": ["hospital.Own"]}))
    return folder


def rows(kit, **columns):
    file = kit.parent / "north.csv"
    names = list(columns)
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    file.write_text("\n".join(lines) + "\n")
    return file


def call(*words):
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return ended.value.code


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


def test_columns_are_described_by_hand_worked_numbers(kit):
    write_site(local_of(kit), str(rows(kit, crp=[1.0, 4.0, 4.0], iron=[2.0, 2.0, 8.0])))
    checked = check(kit)
    assert (checked.name, checked.rows.number, checked.errors) == ("north", 3, [])
    assert [(c.name, c.different, c.minimum, c.mean, c.largest) for c in checked.rows.columns] == [
        ("crp", 2, 1.0, 3.0, 4.0),
        ("iron", 2, 2.0, 4.0, 8.0),
    ]


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
    assert "'platelets' varies more than 100 times as much" in hints
    assert "'crp'" not in hints


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


def wrong(kit, words):
    (error,) = check(kit).errors
    assert re.search(words, error), error


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


# --- the configuration that is written, and what is told beside the rows ---


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
    assert "2 rows have the id of an earlier row" in checked.hints
    assert (
        "other accounts of this machine can read local/flareclust.yaml, startup/client.key: chmod 600" in checked.hints
    )
    assert call("site", "check", kit) == 0
    assert "code in jobs: from project_admin (any), lead (o:site)" in capsys.readouterr().out


def test_a_kit_that_is_closed_is_told_as_such(kit):
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
    monkeypatch.setattr("flareclust.data.column_summary.MOST_DIFFERENT", 100)
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


# --- where rows and labels are ---


def plain(kit, **said):
    """Configure a site whose rows are in a folder of their own, with a policy; return the folder."""
    folder = kit.parent / "rows"
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", np.random.default_rng(0).normal(size=(30, 2)))
    lines = {"path": folder / "a.npy", **said}
    (kit / "local" / "flareclust.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    write_policy(kit / "local", Policy())
    return folder


def hinted(kit, words):
    return [hint for hint in check(kit).hints if words in hint]


def test_labels_in_the_folder_of_the_rows_are_named(kit):
    folder = plain(kit)
    assert not hinted(kit, "labels")
    plain(kit, labels=folder)
    assert hinted(kit, "labels are written into the folder of the rows")
    plain(kit, path=f"{folder}/*.npy", labels=folder)
    assert hinted(kit, "labels are written into the folder of the rows"), "no csv is matched now, but may be later"
    plain(kit, labels=folder / "labels")
    assert not hinted(kit, "labels")


def test_a_pattern_that_reads_the_labels_of_earlier_jobs_in_the_kit_is_named(kit):
    folder = plain(kit)
    (folder / "a.npy").unlink()
    (folder / "a.csv").write_text("x,y\n" + "1.5,2\n2.5,7\n" * 8)
    (kit / "local" / "flareclust.yaml").write_text(f"path: {kit.parent}/**/*.csv\n")
    assert hinted(kit, "labels.csv of each job would be read as rows")
    (kit / "local" / "flareclust.yaml").write_text(f"path: {folder}/**/*.csv\n")
    assert not hinted(kit, "labels.csv")


def test_patterns_that_walk_the_disk_are_named(kit, monkeypatch):
    plain(kit, path="/**/a.npy")
    wrong(kit, "looks through the whole disk")
    plain(kit, path="/")
    wrong(kit, "cannot use its rows: / is a folder")
    folder = plain(kit)
    plain(kit, path=f"{folder}/**/a.npy")
    assert not hinted(kit, "looks through")
    monkeypatch.setenv("HOME", str(folder))
    assert hinted(kit, "looks through a home folder")
    monkeypatch.setenv("HOME", str(kit))
    monkeypatch.setattr("flareclust.sites.places.MANY", 3)
    for number in range(4):
        (folder / f"{number}.txt").touch()
    assert hinted(kit, "looks through more than 3 files and folders")
    plain(kit, path=f"{folder}/a.npy")
    assert not hinted(kit, "looks through")


def test_a_default_scope_that_is_not_there_is_named(kit):
    plain(kit)
    file = kit / "local" / "privacy.json"
    assert not hinted(kit, "default_scope")
    file.write_text(json.dumps({**json.loads(file.read_text()), "default_scope": "strict"}))
    assert hinted(kit, "the default_scope 'strict' and no scope of that name")


def test_arrays_that_no_algorithm_sends_are_named(kit):
    plain(kit)
    write_policy(kit / "local", Policy(arrays=("centroid",)))
    assert hinted(kit, "'centroid' (did you mean 'centroids'?)")


# --- what the kit's own files say comes first, and a server has nothing else ---


def test_trouble_with_the_rows_hides_nothing_about_classes_rights_and_code(kit, capsys):
    write_site(local_of(kit), "absent.csv")
    (kit / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": ["flareclust."]}))
    (kit / "local" / "authorization.json.default").write_text(json.dumps({"permissions": {"lead": {"byoc": "any"}}}))
    (kit / "local").chmod(0o777)
    write_policy(kit / "local", Policy())
    (kit / "local" / "privacy.json").write_text('{"scopes": 3}')
    assert call("site", "check", kit) == 2
    printed = capsys.readouterr()
    assert "north: no rows, see below" in printed.out
    assert "classes: every function of flareclust" in printed.out
    assert "code in jobs: from lead (any)" in printed.out
    assert "policy: broken" in printed.out
    assert "versions: flareclust" in printed.out
    assert "hint: jobs may bring code from lead (any)" in printed.out
    classes, rights, policy, rows = printed.err.splitlines()
    assert classes.startswith("error: north lets jobs call every function of flareclust ('flareclust.' in local/res")
    assert rights == "error: north has local, which other accounts can write; run `chmod go-w local local/*` in its kit"
    assert policy.startswith("error: north has a policy that no job can be held to: ")
    assert rows == "error: north cannot use its rows: absent.csv: no such file"


def test_resources_that_jobs_would_stumble_over_are_an_error(kit):
    plain(kit)
    (kit / "local" / "resources.json").write_text('{"class_allow_list": [],\n "class_allow_list": ["*"]}')
    wrong(kit, "north has a file that cannot be read: .*resources.json has the key 'class_allow_list' twice, .* line 2")


def test_fewer_rows_than_the_policy_asks_for_and_columns_without_bounds_are_errors(kit):
    plain(kit)
    write_policy(kit / "local", Policy(min_count=31))
    wrong(kit, "north has 30 rows where its policy asks for 31")
    private = DifferentialPrivacy(((0, 1), (0, 1), (0, 1)), epsilon=1, delta=1e-6, budget=5)
    write_policy(kit / "local", Policy(dp=private))
    wrong(kit, "north has bounds for 3 columns and rows of 2")


@pytest.fixture
def server(tmp_path):
    """A server's kit as version 0.1 made it."""
    folder = tmp_path / "prod_00" / "hub"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir(mode=0o755)
    (folder / "startup" / "fed_server.json").write_text("{}")
    resources = {"servers": [{"heart_beat_timeout": 600}], "class_allow_list": ["flareclust."], "components": []}
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    rights = {"permissions": {"lead": {"submit_job": "any", "byoc": "any"}}}
    (folder / "local" / "authorization.json.default").write_text(json.dumps(rights))
    return folder


def test_a_servers_kit_is_checked_without_rows_and_policy(server, capsys):
    assert call("site", "check", server) == 2
    printed = capsys.readouterr()
    assert "hub: a server, which has no rows" in printed.out
    assert "code in jobs: from lead (any)" in printed.out
    assert printed.err.startswith("error: hub lets jobs call every function of flareclust")
    assert call("site", "allow", server) == 0
    capsys.readouterr()
    assert call("site", "check", server) == 0
    printed = capsys.readouterr().out
    assert f"classes: {len(of_server())} of {len(of_server())} of flareclust, 0 others" in printed
    assert "code in jobs: from nobody" in printed
    assert "policy" not in printed
    assert "error texts" not in printed
    assert "nothing odd" in printed
    (server / "startup" / "server.key").write_text("")
    (server / "startup" / "server.key").chmod(0o644)
    assert check(server).hints == ["other accounts of this machine can read startup/server.key: chmod 600"]
    (server / "local" / "authorization.json.default").chmod(0o666)
    wrong(server, "hub has local/authorization.json.default, which other accounts can write")


def test_a_low_floor_is_pointed_out(kit):
    write_site(local_of(kit), str(rows(kit, crp=np.arange(30.0), iron=np.arange(30.0) ** 2)))
    write_policy(kit / "local", Policy(min_count=2))
    assert any(
        "min_count is 2: means of fewer than 6 rows hide little; 10 is recommended" in h for h in check(kit).hints
    )
    write_policy(kit / "local", Policy())
    assert not any("min_count" in hint for hint in check(kit).hints)
