"""What `--unit` (`row_name`) names stands in every sentence about rows: report, terminal, notebook, `print`, MLflow's note."""

import csv
import re
from html import unescape

import numpy as np
import pytest

import flareclust
from flareclust._foundation.display import in_unit
from flareclust.cli.main import main
from flareclust.evaluation import continuity
from flareclust.evaluation.profiles import Profiles
from flareclust.experiment.config import Experiment
from flareclust.experiment.reports.page import notebook_page, report_page
from flareclust.experiment.reports.terminal import print_result, print_stability
from flareclust.tracking.note import describe

#: These are not of anybody: random rows, the rule of a schema, and an option of the command.
NOBODYS = re.compile(
    r"rows without clusters|(?:on|of) rows from a uniform box|rows from columns of one mode|drop-rows|Rows without clusters"
)

COLUMNS = ("age", "crp", "sex", "days", "died")
SCHEMA = """
missing: drop-rows
columns:
  age: {type: number, unit: years}
  crp: {type: number, unit: mg/l}
  sex: {type: category, values: [f, m]}
  days: {type: number, range: [0, 4000]}
  died: {type: category, values: ["no", "yes"]}
outcome: {time: days, event: died=yes, every: 100, until: 1000}
"""


def tables(folder, seed):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for site in ("north", "south"):
        with (folder / f"{site}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(COLUMNS)
            for i in range(120):
                middle = 40 if i % 2 else 70
                numbers = [round(rng.normal(middle, 4), 1), "" if i % 20 == 0 else round(rng.normal(middle / 2, 2), 1)]
                table.writerow([*numbers, rng.choice(["f", "m"]), int(rng.uniform(1, 1500)), rng.choice(["no", "yes"])])
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "schema.yaml").write_text(SCHEMA)
    asked = {"partition": "none", "schema": folder / "schema.yaml", "k": 2, "row_name": "patients"}
    flareclust.run("lloyd", tables(folder / "before", 0), engine="inprocess", out=folder / "out", **asked)
    now = tables(folder / "now", 1)
    study = flareclust.stability("lloyd", now, repeats=2, null=19, **asked)
    matched = flareclust.run("lloyd", now, match_to=folder / "out", title="Two groups", engine="inprocess", **asked)
    return study, matched


def of_rows(text):
    return [line for line in NOBODYS.sub("", text).splitlines() if re.search(r"\brows\b", line, re.IGNORECASE)]


def shown(page):
    """Return the texts of a page, without its style."""
    body = re.sub(r"<(style|pre|svg).*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "\n", body))


def test_the_report_calls_rows_what_they_are(found):
    study, matched = found
    assert of_rows(shown(report_page(study.result))) == []
    assert of_rows(shown(report_page(matched))) == []
    text = shown(report_page(matched))
    assert "Whose patients they are" in text
    assert "Patients at risk" in text
    assert re.search(r"their shares differ by .*% of the patients", text)


def test_terminal_and_print_call_them_so(found, capsys):
    study, matched = found
    print_result(matched)
    print_stability(study.result, study.warnings)
    said = capsys.readouterr().out
    assert of_rows(said) == []
    assert re.search(r"cluster +patients +events", said)
    assert "12 of 240 patients were left out, since a cell is missing" in said
    assert "resampled patients" in said
    assert of_rows(str(matched)) == []


def test_a_dry_run_calls_them_so(tmp_path, capsys):
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    data = tables(tmp_path / "data", 0)
    common = ["run", "lloyd", "--data", str(data), "--partition", "none", "--k", "2", "--unit", "patients", "--dry-run"]
    for more in (["--schema", str(tmp_path / "schema.yaml")], ["--columns", "age,days"]):
        with pytest.raises(SystemExit, match="0"):
            main([*common, *more])
        said = capsys.readouterr().out
        assert of_rows(said) == []
        assert "patients" in said


def test_notebook_and_mlflow_call_them_so(found):
    _, matched = found
    assert of_rows(shown(notebook_page(matched))) == []
    assert of_rows(describe(matched, Experiment(**matched.experiment))) == []


def test_settings_and_random_rows_keep_their_name_in_a_sentence():
    for text in (
        "missing: drop-rows",
        "seeds=rows",
        'seeds="rows"',
        "rows without clusters do as well",
        "trim_rows",
        "/data/rows/a",
        "rows.csv",
    ):
        assert in_unit(text, "patients") == text
    assert in_unit("few of 9 rows, the rows of drop-rows", "patients") == "few of 9 patients, the patients of drop-rows"


def test_warnings_of_the_job_and_refusals_call_them_so(tmp_path):
    rng = np.random.default_rng(0)
    sites = {site: np.concatenate([rng.normal(c, 1, (40, 2)) for c in (0, 9)]) for site in ("a", "b")}
    sites["a"] = np.concatenate([sites["a"], np.full((2, 2), 500.0) + rng.normal(0, 1, (2, 2))])
    sites["c"] = sites["b"][:2]
    result = flareclust.run("kfed", sites, k=3, policy={"min_count": 5}, row_name="patients", out=tmp_path / "out")
    assert any("sites described their patients by 2 centers" in text for text in result.warnings)
    assert "fewer patients than" in result.left_out["c"]
    for found in (result, flareclust.load_result(tmp_path / "out")):
        assert of_rows("\n".join([*found.warnings, *found.left_out.values()])) == []
        assert f"c {found.left_out['c']}" in found.warnings


def test_sentences_that_such_a_run_does_not_have():
    rows = np.array([0, 9])
    profiles = Profiles(("x",), {"profile_rows": rows, "profile_means": np.zeros((2, 1))}, "patients")
    assert profiles.undescribed(0) == "too few patients in all to be described"
    assert profiles.alike == "near the average of all patients in every column"
    old = continuity.Clusters(np.array([[0.0], [9.0]]), np.array([500, 500]), np.ones(2))
    moved = continuity.compare(old, continuity.Clusters(old.centroids, np.array([900, 100]), np.ones(2)))
    assert moved.drift("x", "patients") == [
        "drift: the shares of the clusters differ from those of x by 40 % of the patients"
    ]


def test_a_printed_result_fits_24_lines_with_a_title_outcomes_and_whole_warnings(found):
    _, matched = found
    lines = str(matched).splitlines()
    assert lines[0] == "Two groups"
    assert len(lines) < 24
    assert max(map(len, lines)) < 80
    text = " ".join(line.strip() for line in lines)
    assert "died=yes: log-rank test, stratified by site, p = " in text
    assert all(warning in text for warning in matched.warnings)
