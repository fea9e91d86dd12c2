"""The example of OMOP databases: its query and schema give each site the cohort, and the page's code the groups in it."""

import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust.sites.check import check
from flareclust.sites.rows import SiteData
from tests.command_line import call
from tests.paths import ROOT

OMOP = ROOT / "examples" / "omop"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The folder of the example with its databases, and make.py as a module."""
    folder = tmp_path_factory.mktemp("omop")
    for file in OMOP.iterdir():
        if file.is_file():
            shutil.copy(file, folder / file.name)
    spec = spec_from_file_location("omop_make", folder / "make.py")
    made = module_from_spec(spec)
    sys.modules["omop_make"] = made
    spec.loader.exec_module(made)
    made.write(folder)
    yield folder, made
    del sys.modules["omop_make"]


@pytest.fixture
def read_as_on_the_page(example, monkeypatch):
    folder, _ = example
    monkeypatch.chdir(folder)
    (code,) = re.findall(r"```python\n(.*?)```", (OMOP / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    found = {}
    exec(code, found)
    return found


def test_the_code_of_the_page_finds_the_groups(example, read_as_on_the_page):
    _, made = example
    result = read_as_on_the_page["result"]
    for site, frame in read_as_on_the_page["frames"].items():
        table = flareclust.read_table(frame, "schema.yaml")
        true = np.array(made.groups(site))[np.array(list(table.ids), dtype=int) - 1]
        assert len(frame) == made.HOSPITALS[site][0]
        assert adjusted_rand_score(true, result.site_labels[site]) > 0.95


def test_a_site_reads_the_same_rows_from_its_database(example, read_as_on_the_page, capsys):
    folder, _ = example
    kit = folder / "north"
    for name in ("startup", "local"):
        (kit / name).mkdir(parents=True)
    words = ["--rows", "sql+sqlite:///north.db", "--query", "cohort.sql", "--schema", "schema.yaml"]
    assert call("site", "init", kit, *words) == 0
    found = SiteData.of(kit / "local", "north").table()
    expected = flareclust.read_table(read_as_on_the_page["frames"]["north"], "schema.yaml")
    np.testing.assert_array_equal(found.X, expected.X)
    assert list(found.ids) == list(expected.ids)
    checked = check(kit)
    assert checked.errors == []
    assert not [hint for hint in checked.hints if "ORDER BY" in hint or "repeat" in hint]
    assert "dropped" in checked.facts


def test_databases_are_the_same_each_time(example, tmp_path, capsys):
    folder, made = example
    made.write(tmp_path)
    assert (tmp_path / "west.db").read_bytes() == (folder / "west.db").read_bytes()
