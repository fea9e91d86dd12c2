"""`flareclust site`: an operator learns before the first job what a job would say, and what it would not."""

import json

import numpy as np
import pytest

from flareclust.cli import main
from flareclust.engines.workspace import PREFIX
from flareclust.errors import UserError
from flareclust.site_check import check, init, local_of
from flareclust.sites import SiteData


@pytest.fixture
def kit(tmp_path):
    """A site's kit as provisioning makes it, and a file with its rows."""
    folder = tmp_path / "prod_00" / "north"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    (folder / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": ["nvflare."]}))
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


def test_a_site_is_prepared_by_three_commands(kit, capsys):
    rng = np.random.default_rng(0)
    file = rows(kit, crp=rng.normal(size=30), iron=rng.normal(size=30))
    assert call("site", "init", kit, "--rows", file, "--columns", "iron, crp") == 0
    assert capsys.readouterr().out.strip() == str(kit / "local" / "flareclust.yaml")
    assert SiteData.of(kit / "local", "north").columns == ("iron", "crp")
    assert call("site", "check", kit) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "north: 30 rows" in printed
    assert "'flareclust.' is not among the classes allowed" in printed
    assert call("site", "allow", kit) == 0
    assert PREFIX in json.loads((kit / "local" / "resources.json.default").read_text())["class_allow_list"]
    capsys.readouterr()
    assert call("site", "check", kit) == 0
    assert "nothing odd" in capsys.readouterr().out


def test_columns_are_described_by_hand_worked_numbers(kit):
    init(kit, str(rows(kit, crp=[1.0, 4.0, 4.0], iron=[2.0, 2.0, 8.0])))
    checked = check(kit)
    assert (checked.site, checked.rows) == ("north", 3)
    assert [(c.name, c.different, c.least, c.mean, c.largest) for c in checked.columns] == [
        ("crp", 2, 1.0, 3.0, 4.0),
        ("iron", 2, 2.0, 4.0, 8.0),
    ]


def test_odd_columns_are_named(kit):
    rng = np.random.default_rng(0)
    n = 40
    init(
        kit,
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
    assert "'patient': whole numbers that all differ" in hints
    assert "'platelets' varies more than 100 times as much" in hints
    assert "'crp'" not in hints


def test_repeated_rows_and_columns_without_names_are_hinted_at(kit):
    np.save(kit / "local" / "rows.npy", np.repeat([[1.0, 2.5], [3.0, 4.5]], 10, axis=0))
    init(kit, "rows.npy")
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
    init(kit, str(file))
    with pytest.raises(UserError, match=words):
        check(kit)


def test_what_is_no_kit_or_has_no_rows_says_what_to_do(kit, tmp_path, capsys):
    with pytest.raises(UserError, match=r"is no kit: expected a folder with startup/ and local/"):
        local_of(tmp_path)
    with pytest.raises(UserError, match=r"north has no local/flareclust\.yaml"):
        check(kit)
    init(kit, "absent.csv")
    with pytest.raises(UserError, match=r"absent\.csv: no such file"):
        check(kit)
    with pytest.raises(UserError, match="is there already"):
        init(kit, "other.csv")
    assert call("site", "check", tmp_path) == 2
    assert "is no kit" in capsys.readouterr().err
