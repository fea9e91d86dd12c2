"""The tutorial: its files, its error and its result, as a reader gets them."""

import ast
import re
import runpy
import shutil
import subprocess
import sys

import pytest

import flareclust
from flareclust import UserError
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import _profile_lines
from tests.command_line import call
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The three hospitals' tables, the schema and the mapping of west, as the page has them."""
    folder = tmp_path_factory.mktemp("tutorial")
    make = [sys.executable, str(ROOT / "examples" / "hospitals" / "make.py"), str(folder / "data")]
    subprocess.run(make, check=True)
    return described(folder)


def described(folder):
    """Write the schema and the mappings of the page beside the tables."""
    schema, west, south = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (folder / "schema.yaml").write_text(schema, encoding="utf-8")
    (folder / "data" / "west.mapping.yaml").write_text(west, encoding="utf-8")
    (folder / "south.mapping.yaml").write_text(south, encoding="utf-8")
    return folder


def run(folder, **settings):
    own = {"partition": "none", "schema": folder / "schema.yaml", "truth": "diagnosis"}
    return flareclust.run("portfolio", data=folder / "data", k=(2, 8), **own, **settings)


def test_centimetres_are_found_before_anything_runs(folder):
    with pytest.raises(UserError) as error:
        run(folder)
    (expected,) = re.findall(r"^  (tumour: 25 cells.*)$", PAGE, flags=re.MULTILINE)
    assert expected in str(error.value)


def test_the_dry_run_is_that_of_the_pages(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    command = ("run", "portfolio", "--data", "data", "--partition", "none", "--k", "3", "--schema", "schema.yaml")
    (folder / "data" / "south.mapping.yaml").unlink(missing_ok=True)
    west = folder / "data" / "west.mapping.yaml"
    text = west.read_text(encoding="utf-8")
    west.unlink()
    tables = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert call(*command, "--dry-run") == 2
    assert capsys.readouterr().err in tables
    west.write_text(text, encoding="utf-8")
    shutil.copy(folder / "south.mapping.yaml", folder / "data" / "south.mapping.yaml")
    assert call(*command, "--dry-run") == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert printed in PAGE
    assert printed in tables
    (folder / "data" / "south.mapping.yaml").unlink()


@pytest.mark.parametrize("seed", range(1, 8))
def test_the_groups_of_other_patients_are_found_as_well(seed, tmp_path):
    """Sex, which tells nothing, must not decide how many clusters there are (ADR 0025, point 11)."""
    made = runpy.run_path(str(ROOT / "examples" / "hospitals" / "make.py"))
    made["write"](tmp_path / "data", seed)
    shutil.copy(described(tmp_path) / "south.mapping.yaml", tmp_path / "data" / "south.mapping.yaml")
    result = run(tmp_path)
    assert result.k == 3
    assert result.metrics["accuracy"] > 0.93


def test_the_result_is_that_of_the_page(folder):
    shutil.copy(folder / "south.mapping.yaml", folder / "data" / "south.mapping.yaml")
    result = run(folder)
    assert result.k == 3
    (warning,) = result.warnings
    assert f"\nnote: {warning}\n" in PAGE
    assert f"\nnote: {warning}\n" in (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert result.metrics["accuracy"] > 0.93
    assert f"{result.metrics['accuracy']:.4f}" in PAGE
    sizes = result.profiles().groupby("cluster")["rows"].first().tolist()
    assert all(f"       {cluster}   {rows}  " in PAGE for cluster, rows in enumerate(sizes))
    # Units stand beside the names, in the frame, in the words and in the report.
    units = dict(zip(result.profiles()["column"], result.profiles()["unit"], strict=True))
    assert units == {
        "age": "years",
        "crp": "mg/l",
        "tumour": "mm",
        "sex=f": "",
        "sex=m": "",
        "stage": "ordered: I < II < III",
    }
    (words,) = [line for line in _profile_lines(result) if not isinstance(line, str)]
    sentences = [str(cell) for cell in words.columns[2].cells]
    assert all(part in " ".join(PAGE.split()) for sentence in sentences for part in sentence.split("; "))
    assert "tumour (mm) much lower" in sentences[1]
    assert "tumour (mm)" in report_page(result)
    result.save(folder / "saved")
    assert list(flareclust.load_result(folder / "saved").profiles()["unit"]) == list(result.profiles()["unit"])
    # The frame that the page prints fits 80 columns, and is that of both pages.
    (code,) = re.findall(r"^print\((profiles\.pivot.*)\)$", PAGE, flags=re.MULTILINE)
    shown = str(eval(code, {"profiles": result.profiles()})).splitlines()
    assert max(map(len, shown)) <= 80
    frame = "\n".join(line.rstrip() for line in shown)
    assert frame in PAGE
    assert frame in (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")


def test_one_table_is_read_as_the_page_on_tables_does(folder, monkeypatch):
    shutil.copy(folder / "south.mapping.yaml", folder / "data" / "south.mapping.yaml")
    monkeypatch.chdir(folder)
    tables = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    of_files, of_frames = re.findall(r"```python\n(.*?)```", tables, flags=re.DOTALL)
    found: dict[str, object] = {}
    expected = flareclust.run("portfolio", "data", 3, partition="none", schema="schema.yaml")
    for code in (of_files, of_frames.replace("\nflareclust.run(", "\nresult = flareclust.run(")):
        exec(code, found)
        read = found.pop("result")
        assert isinstance(read, flareclust.Result)
        assert (read.labels == expected.labels).all()


def test_centimetres_without_a_range_are_named_as_the_page_on_tables_has_it(folder):
    schema = folder / "without_range.yaml"
    schema.write_text((folder / "schema.yaml").read_text().replace(", range: [1, 200]", ""))
    (folder / "data" / "south.mapping.yaml").unlink(missing_ok=True)
    found = flareclust.run("pooled", folder / "data", 3, partition="none", schema=schema)
    tables = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert [f"note: {warning}" for warning in found.warnings if "left out" not in warning] == re.findall(
        r"^note: south: .*$", tables, flags=re.MULTILINE
    )


def test_protection_costs_what_the_page_says(folder):
    """The runs whose noise is drawn by the system are not compared."""
    shutil.copy(folder / "south.mapping.yaml", folder / "data" / "south.mapping.yaml")
    own = {"partition": "none", "schema": folder / "schema.yaml", "truth": "diagnosis", "k": 3}
    lines = re.findall(r"^\| `(\w+)`.* \| (0\.\d+) \| ([\d,]+) \|$", PAGE, flags=re.MULTILINE)
    protected = [{}, {"policy": {}}, {"policy": {"round_counts": 10}}, {"secure_sums": True}]
    assert len(lines) == len(protected)
    for (algorithm, accuracy, bytes_up), settings in zip(lines, protected, strict=True):
        result = flareclust.run(algorithm, data=folder / "data", **own, **settings)
        assert f"{result.metrics['accuracy']:.3f}" == accuracy
        assert f"{result.bytes['up']:,}" == bytes_up


@pytest.mark.nightly
def test_differential_privacy_costs_what_the_page_says(folder):
    """Half of the runs with epsilon 4 have an accuracy of .92 or more; of 30 runs, 9 or fewer in one case of a hundred."""
    shutil.copy(folder / "south.mapping.yaml", folder / "data" / "south.mapping.yaml")
    own = {"data": folder / "data", "partition": "none", "schema": folder / "schema.yaml", "truth": "diagnosis", "k": 3}
    (bounds,) = re.findall(r"^bounds = (.*)$", PAGE, flags=re.MULTILINE)
    budget = {"epsilon": 4, "delta": 1e-5}
    policy = {"differential_privacy": {"bounds": ast.literal_eval(bounds), "budget": 4, **budget}}
    for algorithm in ("dp-lloyd", "dp-oneshot"):
        runs = [flareclust.run(algorithm, **own, **budget, policy=policy).metrics["accuracy"] for _ in range(30)]
        assert sum(accuracy > 0.9 for accuracy in runs) > 9
