"""docs/partial-features.md prints what its commands print: its worked example is run here, in-process."""

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import IntArray
from flareclust.cli.main import app
from flareclust.evaluation import metrics
from flareclust.preparation.result import sentences
from flareclust.protocol.registry import get
from flareclust.sites.rows import SiteData
from flareclust.testing.tools import run
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "partial-features.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ flareclust (run .*--data sites .*)$", PAGE, flags=re.MULTILINE)

#: A line of a printed table that does not depend on the machine.
MEASURE = re.compile(r"^ ?(?!seconds|measure)([a-z][a-z ]*?) {2,}([\d,.]+(?: of \d+)?) *$", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def printed(start: str) -> str:
    """Return the printed block that begins so."""
    (found,) = [block for block in blocks("text") if block.lstrip().startswith(start)]
    return found.strip()


def diagnoses(folder: Path) -> dict[str, IntArray]:
    """Return by site which tumours are benign."""
    table = np.loadtxt(folder / "benign.csv", delimiter=",", skiprows=1, dtype=str)
    return {str(site): table[table[:, 0] == site, 2].astype(np.int64) for site in np.unique(table[:, 0])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a reader has carried out the example: the files, and what the four commands printed."""
    here = tmp_path_factory.mktemp("clinics")
    assert len(COMMANDS) == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        exec(blocks("python")[0], {})
        for command in COMMANDS:
            ran = CliRunner().invoke(app, [*command.split(), "--engine", "inprocess"])
            assert ran.exit_code == 0, ran.output
            (here / f"{command.split()[1]}.out").write_text(ran.output, encoding="utf-8")
    return here


@pytest.mark.parametrize("name", ["masked", "proxy"])
def test_the_printed_tables_are_those_of_the_commands(folder: Path, name: str) -> None:
    stated = dict(MEASURE.findall(printed(f"{name}, simulator, 3 sites")))
    assert {"inertia", "rounds", "bytes up", "bytes down", "centroids found"} <= set(stated)
    assert dict(MEASURE.findall((folder / f"{name}.out").read_text(encoding="utf-8"))) == stated


@pytest.mark.parametrize("name", ["masked", "proxy"])
def test_the_printed_sentences_are_those_of_the_commands(folder: Path, name: str) -> None:
    said = (folder / f"{name}.out").read_text(encoding="utf-8")
    sentences = [line for line in printed(f"{name}, simulator").splitlines() if re.match(r"\d+ columns|any two", line)]
    assert sentences
    assert all(sentence in said for sentence in sentences)


def test_the_printed_accuracies_are_those_of_the_labels(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    exec(blocks("python")[1], {})
    assert capsys.readouterr().out.strip() == printed("masked       all")


@pytest.mark.nightly
def test_the_table_of_twenty_splits_is_that_of_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    """15 s."""
    runpy.run_path(str(ROOT / "examples" / "columns" / "splits.py"))
    found = capsys.readouterr().out.strip().splitlines()
    rows = re.findall(r"^\| (`|each site alone)(.*?)((?: \| 0\.\d{3} ± 0\.\d{3}){4}) \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == len(found) == 7
    assert [re.findall(r"0\.\d{3} ± 0\.\d{3}", line) for line in found] == [
        re.findall(r"0\.\d{3} ± 0\.\d{3}", numbers) for _, _, numbers in rows
    ]


def test_the_late_site_gets_the_printed_clusters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ran = CliRunner().invoke(app, ["assign", "masked", "--data", "west.csv", "--site", "west", "--out", "west"])
    assert ran.exit_code == 0, ran.output
    assert "$ flareclust assign masked --data west.csv --site west --out west" in PAGE
    assert re.findall(r"^ (\d) +(\d+) rows", printed("cluster\n"), flags=re.MULTILINE) == [("0", "12"), ("1", "28")]
    labels = pd.read_csv("west/labels.csv")["label"].to_numpy()
    assert np.bincount(labels).tolist() == [12, 28]
    benign = diagnoses(folder)["west"]
    right = metrics.accuracy(labels, benign) * len(labels)
    assert f"{right:.0f} of its {len(labels)} labels fit" in PAGE


def test_other_spellings_of_columns_give_the_printed_error(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "sites", tmp_path / "sites")
    screening = tmp_path / "sites" / "screening.csv"
    screening.write_text(screening.read_text().replace("mean ", "Mean "))
    with pytest.raises(JobFailed) as failed:
        flareclust.run("masked", data=tmp_path / "sites", partition="none", k=2, scale="standard")
    assert str(failed.value) == printed("the sites fall into 2 groups")


def test_a_chain_of_sites_gives_the_printed_verdict(folder: Path) -> None:
    sites = {file.stem: pd.read_csv(file) for file in sorted((folder / "sites").iterdir())}
    sites["south"] = sites["south"].drop(columns=list(sites["screening"].columns))
    result = flareclust.run("masked", data=sites, k=2, scale="standard")
    assert sentences(result.arrays) == printed("29 columns in all: 0 at every site").splitlines()
    benign = diagnoses(folder)
    fits = metrics.accuracy(
        np.concatenate([result.site_labels[s] for s in sites]), np.concatenate([benign[s] for s in sites])
    )
    assert f"All labels fit to {fits:.3f}" in PAGE
    with pytest.raises(JobFailed) as failed:
        flareclust.run("fkm-common", data=sites, k=2, scale="standard")
    assert str(failed.value) == printed("no column is common to all sites")


def test_unknown_entries_are_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("python")[2], {})
    assert capsys.readouterr().out.strip() == printed("('crp', 'lactate', 'sodium')")


def test_the_site_file_of_deploy_is_read_and_hides(folder: Path, tmp_path: Path) -> None:
    """The keys are those of the page; the file and the names are put in the places of the page's."""
    deploy = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (config,) = [
        block for block in re.findall(r"^```yaml\n(.*?)^```$", deploy, re.MULTILINE | re.DOTALL) if "salt:" in block
    ]
    named = "[age, crp, iron, lactate, sodium]"
    assert "path: /secure/data/{site}.parquet\n" in config
    assert named in config
    tables = {}
    for site in ("north", "south", "screening"):
        columns = pd.read_csv(folder / "sites" / f"{site}.csv").columns.tolist()
        own = config.replace("/secure/data/{site}.parquet", str(folder / "sites" / "{site}.csv"))
        own = own.replace(named, str([*columns, "a column that only others have"]))
        own = own.replace("hide: [iron]", f"hide: {columns[-1:] if site == 'south' else []}")
        (tmp_path / site).mkdir()
        (tmp_path / site / "flareclust.yaml").write_text(own)
        tables[site] = SiteData.of(tmp_path / site, site).table()
    outcome = run(get("masked"), tables, k=2, scale="standard")
    hidden = [name for name in outcome.arrays["column_names"].tolist() if name.startswith("hidden-")]
    assert len(hidden) == 1
    assert "worst symmetry" not in outcome.arrays["column_names"]
    stated = dict(MEASURE.findall(printed("masked, simulator, 3 sites")))
    assert f"{outcome.metrics['inertia']:,.4f}" == stated["inertia"]
