"""Requests that the command line cannot carry out: one line, exit code 1 or 2, no files."""

import json
import shutil

import numpy as np
import pytest

import flareclust
from tests.unit.cli.cli_cases import FAST, FILES, IRIS, rows, tree, write


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Finished results, made once: drawing their pictures takes longer than the tests."""
    folder = tmp_path_factory.mktemp("results")
    flareclust.run("feca", rows(), 3, n_sites=2, out=folder / "res")
    flareclust.run("central", rows(), 3, n_sites=2, out=folder / "res-central")
    shutil.copytree(folder / "res", folder / "res-damaged")
    (folder / "res-damaged" / "result.json").write_text("{}")
    shutil.copytree(folder / "res", folder / "res-noted")
    (folder / "res-noted" / "notes.txt").write_text("mine")
    return folder


@pytest.fixture
def folder(tmp_path, results):
    """Files of every kind that can go wrong, and finished results."""
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    write(tmp_path / "good.csv", rows())
    write(tmp_path / "strings.csv", [["1", "x"], ["2", "y"]])
    write(tmp_path / "nan.csv", [["1", "2"], ["3", "nan"]])
    write(tmp_path / "header.csv", [])
    write(tmp_path / "wide.csv", np.ones((4, 3)), header="a,b,c")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    (tmp_path / "no-tables").mkdir()
    write(tmp_path / "poor" / "a.csv", rows())
    write(tmp_path / "poor" / "b.csv", [["1", "x"], ["2", "y"]])
    (tmp_path / "poor" / "c.csv").write_text("")
    write(tmp_path / "poor" / "d.csv", [["1", ""], ["3", "4"]])
    write(tmp_path / "spaced" / "site one.csv", rows())
    return tmp_path


OWN = ("run", "feca", "--k", "3", "--n-sites", "2", "--data")

KFED = ("run", "kfed", "--data", "iris", "--n-sites", "3")

AT_SITES = ("run", "feca", "--k", "3", "--engine", "production", "--kit", "kit")

CENTRAL = ("run", "central", "--data", "iris", "--n-sites", "3")

LATE = ("assign", "res", "--out", "labels", "--data")

BAD = {
    "algorithm": (("run", "fecca"), 2, ["'fecca'", "did you mean 'feca'"]),
    "k, word": (("run", "feca", "--k", "many"), 2, ["an integer or a range such as 5..25", "'many'"]),
    "k, range reversed": (("run", "feca", "--k", "9..3"), 2, ["9..3 is reversed", "write 3..9"]),
    "k, range from one": (("run", "feca", "--k", "1..3"), 2, ["must start at 2"]),
    "k, range for a baseline": (("run", "central", "--k", "2..3"), 2, ["takes one k"]),
    "k, range and k_min": (("run", "pooled", "--k", "2..3", "--set", "k_min=2"), 2, ["k_min already"]),
    "criterion twice": (("run", "pooled", "--k", "2..4", "--set", "criterion=elbow"), 2, ["--criterion"]),
    "criterion, one k": (("run", "feca", "--k", "3", "--criterion", "elbow"), 2, ["a range, such as --k 5..25"]),
    "criterion, k_min": (
        ("run", "pooled", "--k", "4", "--set", "k_min=2", "--criterion", "elbow"),
        2,
        ["--k 2..4", "--set criterion=elbow"],
    ),
    "criterion": (("run", "feca", "--k", "2..4", "--criterion", "silouette"), 2, ["did you mean 'silhouette'"]),
    "no rounds": (
        ("run", "fkm", "--data", "iris", "--set", "rounds=0"),
        2,
        ["rounds must be an integer from 1 to 10000, got 0"],
    ),
    "no fuzzifier": (("run", "ffcm", "--data", "iris", "--set", "fuzzifier=1"), 2, ["fuzzifier"]),
    "no data": (("run", "portfolio", "--k", "2", *FAST), 2, ["which data?", "--data digits"]),
    "no data to repeat": (("stability", "portfolio", "--k", "2"), 2, ["which data?", "flareclust stability"]),
    "algorithm, far": (("run", "zzzz"), 2, ["'zzzz'", "known: portfolio, feca, kfed"]),
    "partition": ((*IRIS, "--partition", "idd"), 2, ["'idd'", "did you mean 'iid'"]),
    "parameter": ((*IRIS, "--set", "n_initt=3"), 2, ["'n_initt'", "did you mean 'n_init'"]),
    "parameter of the job": ((*IRIS, "--set", "seed=3"), 2, ["no parameter 'seed'"]),
    "data": (("run", "feca", "--data", "irris"), 2, ["'irris'", "did you mean 'iris'"]),
    "engine": (
        (*IRIS, "--engine", "inproces"),
        2,
        ["must be one of inprocess, devices, simulator", "(did you mean 'inprocess'?)"],
    ),
    "k is 0": ((*IRIS, "--k", "0"), 2, ["k must be an integer of at least 1, or None, got 0"]),
    "k is -1": ((*IRIS, "--k", "-1"), 2, ["k must be", "got -1"]),
    "k above all rows": ((*IRIS, "--k", "1000"), 2, ["k=1000 is more than the 150 rows of all sites together"]),
    "k above most sites": (
        (*IRIS, "--k", "10", "--partition", "power:4"),
        1,
        ["1 of 3", "at least 2", "(site-2, site-3): each has"],
    ),
    "k above all rows, lloyd": (
        ("run", "lloyd", "--data", "iris", "--n-sites", "3", "--k", "500"),
        2,
        ["k=500 is more than the 150 rows of all sites together"],
    ),
    "k above all rows, central": ((*CENTRAL, "--k", "1000"), 2, ["k=1000", "150 rows"]),
    "no sites": (("run", "feca", "--data", "iris", "--n-sites", "0"), 2, ["n_sites", "got 0"]),
    "more sites than rows": (("run", "feca", "--data", "iris", "--n-sites", "151"), 2, ["(151)", "(150)"]),
    "partition without its value": ((*IRIS, "--partition", "dirichlet"), 2, ["needs a value", "dirichlet:A"]),
    "partition with an empty value": ((*IRIS, "--partition", "dirichlet:"), 2, ["needs a value"]),
    "partition with garbage": ((*IRIS, "--partition", "dirichlet:x"), 2, ["positive number", "'x'"]),
    "partition below 0": ((*IRIS, "--partition", "power:-1"), 2, ["positive number", "'-1'"]),
    "partition not whole": ((*IRIS, "--partition", "clusters:1.5"), 2, ["integer", "'1.5'"]),
    "partition with too much": ((*IRIS, "--partition", "iid:3"), 2, ["takes no value"]),
    "partition without labels": ((*OWN, "good.csv", "--partition", "clusters:2"), 2, ["class label", "iid"]),
    "csv with strings": ((*OWN, "strings.csv"), 2, ["strings.csv", "column 'b' is not numeric", "row 1"]),
    "csv with NaN": ((*OWN, "nan.csv"), 2, ["nan.csv", "NaN", "row 2", "column 'b'"]),
    "csv without rows": ((*OWN, "header.csv"), 2, ["header.csv", "no rows"]),
    "empty file": ((*OWN, "empty.csv"), 2, ["empty.csv is empty"]),
    "missing file": ((*OWN, "nowhere.csv"), 2, ["nowhere.csv: no such file"]),
    "not a table": ((*OWN, "file"), 2, ["unknown suffix", ".csv"]),
    "folder without 'none'": ((*OWN, "poor"), 2, ["poor"]),
    "no site files": ((*OWN, "no-tables", "--partition", "none"), 2, ["no-tables has no files ending in"]),
    "no such folder": ((*OWN, "nowhere", "--partition", "none"), 2, ["nowhere", "folder with one file per site"]),
    "not a site's name": (
        (*OWN, "spaced", "--partition", "none"),
        2,
        ["'site one' cannot be a site's name", "rename it"],
    ),
    "most sites are bad": (
        (*OWN, "poor", "--partition", "none"),
        1,
        ["1 of 4 sites", "b cannot use its rows: b.csv", "c cannot use its rows: c.csv is empty", "d cannot use"],
    ),
    "a bad site, central": (
        ("run", "central", "--k", "3", "--data", "poor", "--partition", "none"),
        2,
        ["b cannot use its rows: b.csv"],
    ),
    "k not known": (("run", "feca", "--data", "good.csv"), 2, ["k is not known", "--k"]),
    "out is a file": ((*IRIS, "--out", "file"), 2, ["file is a file", "--out"]),
    "out is below a file": ((*IRIS, "--out", "file/below"), 2, ["file"]),
    "out is somebody's folder": ((*IRIS, "--out", "foreign"), 2, ["foreign holds other files"]),
    "out is a result with somebody's notes": ((*IRIS, "--out", "res-noted"), 2, ["res-noted holds other files"]),
    "register without tracking": ((*IRIS, "--register", "model"), 2, ["--register", "--no-track"]),
    "central in the simulator": ((*CENTRAL, "--engine", "simulator"), 2, ["not federated", "inprocess"]),
    "central with a bad setting": ((*CENTRAL, "--set", "n_init=0"), 2, ["n_init", "0"]),
    "central with text": ((*CENTRAL, "--set", "max_iter=many"), 2, ["max_iter", "'many'"]),
    "min-sites above the sites": ((*IRIS, "--min-sites", "4"), 2, ["min_sites", "4", "3"]),
    "min-sites 0": ((*IRIS, "--min-sites", "0"), 2, ["min_sites", "got 0"]),
    "a wait without a time": ((*AT_SITES, "--expect-sites", "a, b", "--wait-for", "2"), 2, ["--wait-for", "--for"]),
    "a wait without sites of their own": ((*IRIS, "--for", "5"), 2, ["wait_seconds (--for)", "engine production"]),
    "seed below 0": ((*IRIS, "--seed", "-1"), 2, ["seed", "got -1"]),
    "no time": ((*IRIS, "--task-timeout", "0"), 2, ["task_timeout", "got 0"]),
    "setting without a value": ((*IRIS, "--set", "n_init"), 2, ["--set expects key=value"]),
    "setting twice": ((*IRIS, "--set", "n_init=1", "--set", "n_init=2"), 2, ["'n_init' twice"]),
    "setting out of range": ((*IRIS, "--set", "n_init=0"), 2, ["n_init", "from 1 to 10000"]),
    "setting misspelt": ((*IRIS, "--set", "init=kmeans++"), 2, ["did you mean 'k-means++'"]),
    "k_local above k": ((*KFED, "--set", 'k_local={"site-1": 9}'), 2, ["k_local of site-1 is 9", "k=3"]),
    "start that is no site": ((*KFED, "--set", "start=site-9"), 2, ["'site-9'", "did you mean 'site-"]),
    "data get": (("data", "get", "irris", "--folder", "new"), 2, ["did you mean 'iris'"]),
    "data get below a file": (("data", "get", "iris", "--folder", "file"), 2, ["cannot be written"]),
    "export of central": (("jobs", "export", "central", "job", "--k", "3"), 2, ["not federated"]),
    "export with k 0": (("jobs", "export", "feca", "job", "--k", "0"), 2, ["k must be"]),
    "export over files": (("jobs", "export", "feca", "foreign", "--k", "3"), 2, ["other files than an exported job"]),
    "export over a file": (("jobs", "export", "feca", "file", "--k", "3"), 2, ["file"]),
    "assign without a result": (("assign", "no-tables", "--data", "good.csv"), 2, ["result.npz and result.json"]),
    "assign to a damaged result": (("assign", "res-damaged", "--data", "good.csv"), 2, ["res-damaged"]),
    "assign with other columns": ((*LATE, "wide.csv"), 2, ["late-site", "3 columns", "2"]),
    "assign with other columns, central": (
        ("assign", "res-central", "--out", "labels", "--data", "wide.csv"),
        2,
        ["3", "2", "columns"],
    ),
    "assign with NaN": ((*LATE, "nan.csv"), 2, ["nan.csv", "NaN"]),
    "assign at a site into a folder": (
        ("assign", "res", "--kit", "lead", "--out", "labels"),
        2,
        ["--out", "--data", "stay at the site"],
    ),
    "assign into a file": (("assign", "res", "--data", "good.csv", "--out", "file"), 2, ["file"]),
    "ui on a bad port": (("ui", "--port", "0"), 2, ["port"]),
    "ui on a bad store": (("ui", "--uri", "./mlruns"), 2, ["sqlite:///<file>"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_ends_with_one_line_and_no_files(command, folder, monkeypatch, case):
    args, code, words = BAD[case]
    monkeypatch.setenv("FLARECLUST_DATA", str(folder))
    before = tree(folder)
    own = () if args[0] != "run" else FAST[2:] if "--engine" in args else FAST
    done = command(*args, *own)
    assert (done.code, done.out) == (code, "")
    line = done.err.removesuffix("\n")
    assert line.startswith("error: ")
    assert "\n" not in line
    assert line == line.strip()
    for word in words:
        assert word in line
    assert tree(folder) == before


@pytest.mark.parametrize("args", [("--seed", "many"), ("--no-such-option",), ("--n-sites", "2.5")])
def test_words_that_do_not_parse_are_the_users_mistake(command, args):
    done = command(*IRIS, *args)
    assert (done.code, done.out) == (2, "")
    assert args[0] in done.err


# --- one bad site among good ones ---


ODD_SITES = {
    "NaN": ([["1", "2"], ["3", ""]], "a,b", "odd cannot use its rows: odd.csv: 1 cell is missing"),
    "strings": ([["1", "2"], ["3", "secret"]], "a,b", "odd cannot use its rows: odd.csv: column 'b' is not numeric"),
    "other columns": (
        np.c_[rows(5), rows(6)[:, 0]],
        "a,b,c",
        "odd has 3 columns where most sites have 2; on one side only: c",
    ),
    "no file content": (None, "", "odd cannot use its rows: odd.csv is empty"),
    "too few rows": ([["1", "2"], ["3", "4"]], "a,b", "odd has fewer rows than k=3"),
}


@pytest.mark.parametrize("case", ODD_SITES)
def test_one_bad_site_is_named_and_the_others_are_as_without_it(command, tmp_path, case):
    table, header, warning = ODD_SITES[case]
    for i in range(3):
        write(tmp_path / "with" / f"h{i}.csv", rows(i))
        write(tmp_path / "without" / f"h{i}.csv", rows(i))
    if table is None:
        (tmp_path / "with" / "odd.csv").write_text("")
    else:
        write(tmp_path / "with" / "odd.csv", table, header)
    common = ("run", "feca", "--partition", "none", "--k", "3", *FAST)
    done = command(*common, "--data", "with", "--out", "a")
    assert (done.code, done.err) == (0, "")
    printed = json.loads(done.out)
    assert printed["n_sites"] == 4
    assert len(printed["warnings"]) == 1
    assert printed["warnings"][0].startswith(warning)
    assert "secret" not in done.out
    assert str(tmp_path) not in printed["warnings"][0]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == FILES
    command(*common, "--data", "without", "--out", "b")
    with np.load(tmp_path / "a/result.npz") as a, np.load(tmp_path / "b/result.npz") as b:
        compared = {
            "scaled_sites",
            "site_cells",
            "site_means",
            "site_deviations",
        }  # also of a site that then takes no part
        assert {name: a[name].tolist() for name in {*a} - compared} == {
            name: b[name].tolist() for name in {*b} - compared
        }


def test_k_above_one_site_only_goes_on_with_a_warning(command):
    done = command("run", "feca", "--data", "iris", "--n-sites", "3", "--partition", "power:2.5", "--k", "15", *FAST)
    assert done.code == 0, done.err
    assert "site-3 has fewer rows than k=15" in json.loads(done.out)["warnings"]


def test_fewer_centroids_than_k_are_said(command, tmp_path):
    """Two places only: k-means may find no third cluster, and none may be made up."""
    write(tmp_path / "two.csv", [[x, float(y)] for x in (0.0, 9.0) for y in range(2)] * 5)
    done = command("run", "kfed", "--data", "two.csv", "--k", "4", "--n-sites", "1", "--set", "k_local=2", *FAST)
    printed = json.loads(done.out)
    assert printed["centroids_found"] == 2
    assert "2 centroids were found where k=4 were asked for" in printed["warnings"]
