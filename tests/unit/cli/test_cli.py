"""The command line: one JSON object or one error line, exit codes 0, 1 and 2, all files or none."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.cli.main import main, parse_settings
from flareclust.data.datasets import names
from flareclust.data.labels import read_labels
from flareclust.protocol.registry import algorithms

FAST = ("--engine", "inprocess", "--no-track", "--json")
IRIS = ("run", "feca", "--data", "iris", "--clients", "3")
FILES = ["labels.csv", "picture.png", "result.json", "result.npz", "rounds.jsonl"]
KEYS = [
    *("algorithm", "engine", "seed", "k", "clients", "params", "rounds", "seconds", "bytes"),
    *("centroids_found", "metrics", "centroids_file", "warnings"),
]


class TrialRun(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the command in an empty folder, as the console script would."""
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_SERVER_LEVEL"):
        monkeypatch.setenv(name, "CRITICAL")  # the command sets these; monkeypatch takes them back
    handler = signal.getsignal(signal.SIGTERM)

    def call(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        return TrialRun(ended.value.code or 0, *capsys.readouterr())

    yield call
    signal.signal(signal.SIGTERM, handler)


def rows(seed=0, n=30):
    """n rows around three far points, in two columns."""
    rng = np.random.default_rng(seed)
    return np.repeat([[0.0, 0.0], [5.0, 5.0], [10.0, 0.0]], n // 3, axis=0) + rng.normal(0, 0.1, (n, 2))


def write(path, table, header="a,b"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in table)]) + "\n")


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def nearest(X, centroids):
    return ((X[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


# --- what a run prints and writes ---


def in_a_process(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "flareclust.cli", *args],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "FLARECLUST_DATA"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,  # the first process of a fresh clone compiles the kernels
        check=False,
        start_new_session=True,
    )


def test_json_is_one_object_with_the_promised_keys_and_nothing_else(tmp_path):
    done = in_a_process(tmp_path, *IRIS, *FAST, "--set", "n_init=3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("}\n")
    assert done.stdout.count("\n") == 1
    printed = json.loads(done.stdout)
    assert list(printed) == KEYS
    assert set(printed["seconds"]) == {"total", "local_max", "merge"}
    assert set(printed["bytes"]) == {"up", "down"}
    assert printed["params"]["n_init"] == 3
    assert (printed["algorithm"], printed["engine"], printed["k"], printed["clients"]) == ("feca", "inprocess", 3, 3)
    assert {"inertia", "simplified_silhouette", "davies_bouldin", "ari", "nmi", "purity", "accuracy"} <= set(
        printed["metrics"]
    )
    assert (tmp_path / "flareclust-runs").is_dir()


def test_an_error_is_one_line_and_no_traceback(tmp_path):
    done = in_a_process(tmp_path, "run", "fecca", *FAST)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown algorithm 'fecca' (did you mean 'feca'?)")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_a_run_can_be_read_without_this_package(command, tmp_path):
    printed = json.loads(command(*IRIS, *FAST, "--out", "mine").out)
    folder = tmp_path / "mine"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert printed["centroids_file"] == str(folder / "result.npz")
    with np.load(folder / "result.npz", allow_pickle=False) as arrays:
        assert arrays["centroids"].shape == (printed["centroids_found"], 4)
    kept = json.loads((folder / "result.json").read_text())
    assert {key: kept[key] for key in ("metrics", "seconds", "bytes", "params", "k")} == {
        key: printed[key] for key in ("metrics", "seconds", "bytes", "params", "k")
    }
    steps = [json.loads(line)["step"] for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert steps == ["cluster", "assess"]
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_default_folder_is_named_for_the_run(command, tmp_path):
    command(*IRIS, *FAST, "--partition", "dirichlet:0.3", "--seed", "4")
    (folder,) = (tmp_path / "flareclust-runs").iterdir()
    assert re.match(r"feca-.*dirichlet-0\.3-s4-\d{8}-\d{6}", folder.name)
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_two_runs_of_the_same_second_keep_both_results(command, tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda *args: "20260101-000000")
    files = [
        json.loads(command("run", "feca", "--data", name, *FAST).out)["centroids_file"] for name in ("iris", "wine")
    ]
    assert [np.load(file)["centroids"].shape[1] for file in files] == [4, 13]


def test_a_result_takes_the_place_of_an_older_one_only_when_it_is_complete(command, tmp_path):
    command(*IRIS, *FAST, "--out", "mine")
    before = tree(tmp_path)
    assert command(*IRIS, *FAST, "--out", "mine", "--k", "1000").code == 1
    assert tree(tmp_path) == before
    assert command(*IRIS, *FAST, "--out", "mine", "--seed", "1").code == 0
    assert json.loads((tmp_path / "mine" / "result.json").read_text())["seed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_json_a_person_reads_measures_notes_and_where_the_files_are(command, tmp_path):
    for i in range(3):
        write(tmp_path / "hospitals" / f"h{i}.csv", rows(i))
    write(tmp_path / "hospitals" / "odd.csv", [["1", "x"], ["2", "y"]], header="a,b[/dose]")
    done = command(
        *("run", "feca", "--data", "hospitals", "--partition", "none", "--k", "3", "--out", "[new] results"),
        *("--engine", "inprocess", "--no-track"),
    )
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "centroids found 3 of 3" in text
    assert "left out: odd cannot use its rows" in text
    assert "'b[/dose]'" in text
    assert "[new] results" in text


def test_an_interrupt_is_said_and_leaves_nothing(command, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("flareclust.experiment.run.run_inprocess", interrupted)
    done = command(*IRIS, *FAST)
    assert (done.code, done.out) == (130, "")
    assert done.err.strip().splitlines()[-1].startswith("error: interrupted")
    assert tree(tmp_path) == {}


def test_sigterm_ends_a_run_as_an_interrupt_does(command, tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.experiment.run.run_inprocess", lambda *args: os.kill(os.getpid(), signal.SIGTERM))
    assert command(*IRIS, *FAST).code == 130
    assert tree(tmp_path) == {}


# --- settings ---


def test_settings_are_json_where_they_can_be_and_text_elsewhere():
    pairs = [
        "a=1",
        "b=k-means++",
        'c={"site-1": 2}',
        "d=null",
        "e=true",
        "f=x=y",
        "g=",
        'h="2"',
        "i=0.5",
        "j=True",
        "k=None",
    ]
    assert parse_settings(pairs) == {
        "a": 1,
        "b": "k-means++",
        "c": {"site-1": 2},
        "d": None,
        "e": True,
        "f": "x=y",
        "g": "",
        "h": "2",
        "i": 0.5,
        "j": True,
        "k": None,
    }


@pytest.mark.parametrize(
    ("pairs", "message"),
    [(["n_init"], "key=value, got 'n_init'"), (["=3"], "key=value"), (["a=1", "a=2"], "'a' twice")],
)
def test_settings_that_cannot_be_read(pairs, message):
    with pytest.raises(UserError, match=message):
        parse_settings(pairs)


# --- the other commands ---


def test_version(command):
    assert command("--version") == TrialRun(0, f"flareclust {flareclust.__version__}\n", "")


def test_list_names_every_algorithm_with_its_settings(command):
    table = algorithms()
    listed = {row["name"]: row for row in json.loads(command("list", "--json").out)}
    assert list(listed) == list(table)
    for name, algorithm in table.items():
        assert listed[name]["parameters"] == algorithm.parameters()
        assert listed[name]["federated"] == algorithm.federated
    assert listed["feca"]["sends"] == "centroids float64 (k, d), radii float64 (k)"
    words = command("list").out.split()
    assert set(table) <= set(words)


def test_data_list_names_every_data_set(command):
    words = command("data", "list").out.split()
    assert set(names()) <= set(words)


def test_data_get_writes_the_file_and_prints_its_path(command, tmp_path):
    done = command("data", "get", "iris", "--folder", "here")
    assert (done.code, done.out.strip()) == (0, "here/iris/iris.npz")
    with np.load(tmp_path / "here/iris/iris.npz", allow_pickle=False) as arrays:
        assert arrays["X"].shape == (150, 4)
    assert sorted(os.listdir(tmp_path)) == ["here"]


def test_jobs_export_writes_a_job_whose_classes_load(command, tmp_path):
    settings = ("--set", "k_local=2", "--set", "lloyd_rounds=3", "--seed", "5", "--min-sites", "2")
    done = command("jobs", "export", "kfed", "jobs/mine", "--k", "4", *settings, "--task-timeout", "7")
    assert (done.code, done.out.strip(), done.err) == (0, "jobs/mine", "")
    config = tmp_path / "jobs/mine/app/config"
    client = json.loads((config / "config_fed_client.json").read_text())
    server = json.loads((config / "config_fed_server.json").read_text())
    executor, aggregator, controller = (
        getattr(import_module(part["path"].rpartition(".")[0]), part["path"].rpartition(".")[2])(**part["args"])
        for part in (client["executors"][0]["executor"], server["components"][0], server["workflows"][0])
    )
    assert (executor.k, executor.seed, executor.k_local) == (4, 5, 2)
    assert (aggregator.k, aggregator.seed, aggregator.lloyd_rounds) == (4, 5, 3)
    assert (controller.min_sites, controller.task_timeout) == (2, 7)


@pytest.mark.parametrize(("store", "words"), [(False, "no MLflow store"), (True, "port 5056 cannot be used")])
def test_ui_says_what_it_cannot_show(command, tmp_path, monkeypatch, store, words):
    monkeypatch.setattr(os, "execv", lambda path, argv: pytest.fail("handed over"))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if store:
        (tmp_path / "runs.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 5056))
        taken.listen()
        done = command("ui", "--port", "5056", "--uri", f"sqlite:///{tmp_path}/runs.db")
    assert (done.code, words in done.err) == (2, True)


def test_ui_hands_over_to_mlflow(command, tmp_path, monkeypatch):
    (tmp_path / "runs.db").touch()
    calls = []
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what the command adds is for the program that it becomes
    monkeypatch.setattr(os, "execv", lambda path, argv: calls.append((path, argv)))
    done = command("ui", "--port", "5055", "--uri", f"sqlite:///{tmp_path}/runs.db")
    assert (done.code, done.out) == (0, "")
    assert "http://127.0.0.1:5055" in done.err
    ((path, argv),) = calls
    assert path == argv[0] == sys.executable
    assert argv[1:4] == ["-m", "mlflow", "ui"]
    assert f"sqlite:///{tmp_path}/runs.db" in argv
    assert argv[argv.index("--port") + 1] == "5055"


# --- columns ---


def test_files_of_sites_are_read_by_name(command, tmp_path):
    """One hospital has its columns in another order: the result is as if it had not."""
    for i in range(3):
        write(tmp_path / "same" / f"h{i}.csv", rows(i), "age,crp")
        write(tmp_path / "mixed" / f"h{i}.csv", rows(i), "age,crp")
    write(tmp_path / "mixed" / "h2.csv", rows(2)[:, ::-1], "crp,age")
    other = np.c_[rows(2)[:, 1], np.arange(len(rows(2))), rows(2)[:, 0]]
    common = ("run", "feca", "--partition", "none", "--k", "3", *FAST)
    assert json.loads(command(*common, "--data", "mixed", "--out", "m").out)["warnings"] == []
    command(*common, "--data", "same", "--out", "s")
    command(*common, "--data", "mixed", "--out", "r", "--columns", "crp, age")
    m, s, r = (np.load(tmp_path / out / "result.npz")["centroids"] for out in "msr")
    np.testing.assert_array_equal(m, s)
    assert np.abs(np.sort(r[:, ::-1], axis=0) - np.sort(s, axis=0)).max() < 1.0
    assert json.loads((tmp_path / "m" / "result.json").read_text())["columns"] == ["age", "crp"]

    write(tmp_path / "late.csv", other, "crp,patient,age")
    assert command("assign", "m", "--data", "late.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(rows(2), m))
    (tmp_path / "text.csv").write_text("sex,age,crp\n" + "".join(f"f,{x},{y}\n" for x, y in rows(2).tolist()))
    assert command("assign", "m", "--data", "text.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(rows(2), m))
    write(tmp_path / "iris.csv", rows(2), "petal,sepal")
    wrong = command("assign", "m", "--data", "iris.csv", "--out", "labels")
    assert (wrong.code, "'age'" in wrong.err) == (2, True)


def test_columns_of_one_file_are_chosen_by_name(command, tmp_path):
    write(tmp_path / "all.csv", np.c_[rows(), np.arange(len(rows()))], "age,crp,patient")
    done = command(
        "run", "feca", "--data", "all.csv", "--columns", "age,crp", "--k", "3", "--clients", "2", *FAST, "--out", "res"
    )
    assert done.code == 0
    assert np.load(tmp_path / "res/result.npz")["centroids"].shape[1] == 2
    wrong = command("run", "feca", "--data", "all.csv", "--columns", "age,crop", "--k", "3", *FAST, "--out", "x")
    assert (wrong.code, "did you mean 'crp'" in wrong.err) == (2, True)


# --- late sites ---


def test_a_late_site_of_feca_gets_the_labels_of_predict(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    late = rows(7)[::-1]
    write(tmp_path / "late.csv", late)
    command("run", "feca", "--data", "all.csv", "--k", "3", "--clients", "2", *FAST, "--out", "res")
    done = command("assign", "res", "--data", "late.csv", "--out", "labels")
    assert done.code == 0
    assert "labels/labels.csv" in done.out
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    found = read_labels(tmp_path / "labels")
    np.testing.assert_array_equal(found, nearest(late, centroids))
    result = flareclust.run("feca", data=tmp_path / "all.csv", k=3, clients=2)
    np.testing.assert_array_equal(found, result.predict(late))


@pytest.mark.parametrize(("labels_by", "expected"), [("induced", [0] * 9 + [0]), ("nearest", [0] * 9 + [1])])
def test_a_late_site_of_kfed_gets_induced_labels(command, tmp_path, labels_by, expected):
    """One local cluster around 0, 0 holds one row that lies nearer to the other site's cluster at 100, 0."""
    square = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    write(tmp_path / "two" / "a.csv", square)
    write(tmp_path / "two" / "b.csv", square + np.array([100.0, 0.0]))
    late = np.concatenate([np.zeros((9, 2)), [[60.0, 0.0]]])
    write(tmp_path / "late.csv", late)
    settings = ("--set", "k_local=1", "--set", f"labels_by={labels_by}")
    command("run", "kfed", "--data", "two", "--partition", "none", "--k", "2", *settings, *FAST, "--out", "res")
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    np.testing.assert_allclose(centroids, [[0.0, 0.0], [100.0, 0.0]])
    assert command("assign", "res", "--data", "late.csv", "--out", "labels").code == 0
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), expected)


def test_a_late_site_chooses_columns_by_name(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    command("run", "feca", "--data", "all.csv", "--k", "3", "--clients", "2", *FAST, "--out", "res")
    late = rows(7)
    table = "\n".join(["id,b,a", *(f"{i},{y},{x}" for i, (x, y) in enumerate(late.tolist()))])
    (tmp_path / "late.csv").write_text(table)
    assert command("assign", "res", "--data", "late.csv", "--columns", "a, b", "--out", "labels").code == 0
    centroids = np.load(tmp_path / "res/result.npz")["centroids"]
    np.testing.assert_array_equal(read_labels(tmp_path / "labels"), nearest(late, centroids))


def test_assign_refuses_what_would_mislead_or_destroy(command, tmp_path):
    write(tmp_path / "all.csv", rows())
    command("run", "kfed", "--data", "all.csv", "--k", "3", "--clients", "3", *FAST, "--out", "res")
    late = ("assign", "res", "--data", "all.csv")
    took_part = command(*late, "--site", "site-1", "--out", "labels")
    assert (took_part.code, "site-1 took part" in took_part.err) == (2, True)
    (tmp_path / "labels.csv").write_text("id,truth\n1,2\n")
    overwrite = command(*late)
    assert (overwrite.code, "none of ours" in overwrite.err) == (2, True)
    assert (tmp_path / "labels.csv").read_text() == "id,truth\n1,2\n"


# --- a request that cannot be carried out ---


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Finished results, made once: drawing their pictures takes longer than the tests."""
    folder = tmp_path_factory.mktemp("results")
    flareclust.run("feca", rows(), 3, clients=2, out=folder / "res")
    flareclust.run("central", rows(), 3, clients=2, out=folder / "res-central")
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


OWN = ("run", "feca", "--k", "3", "--clients", "2", "--data")
KFED = ("run", "kfed", "--data", "iris", "--clients", "3")
CENTRAL = ("run", "central", "--data", "iris", "--clients", "3")
LATE = ("assign", "res", "--out", "labels", "--data")

BAD = {
    "algorithm": (("run", "fecca"), 2, ["'fecca'", "did you mean 'feca'"]),
    "k, word": (("run", "feca", "--k", "many"), 2, ["an integer or a range such as 5..25", "'many'"]),
    "k, range reversed": (("run", "feca", "--k", "9..3"), 2, ["9..3 is reversed", "write 3..9"]),
    "k, range from one": (("run", "feca", "--k", "1..3"), 2, ["must start at 2"]),
    "k, range for a baseline": (("run", "central", "--k", "2..3"), 2, ["takes one k"]),
    "k, range and k_min": (("run", "pooled", "--k", "2..3", "--set", "k_min=2"), 2, ["k_min already"]),
    "choose-by twice": (("run", "pooled", "--k", "2..4", "--set", "choose_by=elbow"), 2, ["--choose-by"]),
    "choose-by": (("run", "feca", "--k", "2..4", "--choose-by", "silouette"), 2, ["did you mean 'silhouette'"]),
    "no rounds": (("run", "fkm", "--set", "rounds=0"), 2, ["rounds must be an integer of at least 1, got 0"]),
    "no fuzzifier": (("run", "ffcm", "--set", "fuzzifier=1"), 2, ["fuzzifier"]),
    "algorithm, far": (("run", "zzzz"), 2, ["'zzzz'", "known: portfolio, feca, kfed"]),
    "partition": ((*IRIS, "--partition", "idd"), 2, ["'idd'", "did you mean 'iid'"]),
    "parameter": ((*IRIS, "--set", "n_initt=3"), 2, ["'n_initt'", "did you mean 'n_init'"]),
    "parameter of the job": ((*IRIS, "--set", "seed=3"), 2, ["no parameter 'seed'"]),
    "data": (("run", "feca", "--data", "irris"), 2, ["'irris'", "did you mean 'iris'"]),
    "engine": ((*IRIS, "--engine", "inproces"), 2, ["'inprocess', 'simulator', 'poc' or 'production'", "'inproces'"]),
    "k is 0": ((*IRIS, "--k", "0"), 2, ["k:", "greater than or equal to 1", "got 0"]),
    "k is -1": ((*IRIS, "--k", "-1"), 2, ["k:", "got -1"]),
    "k above all rows": ((*IRIS, "--k", "1000"), 1, [f"site-{i} has fewer rows than k=1000" for i in (1, 2, 3)]),
    "k above most sites": ((*IRIS, "--k", "10", "--partition", "power:4"), 1, ["1 of 3", "at least 2", "site-3 has"]),
    "k above all rows, lloyd": (
        ("run", "lloyd", "--data", "iris", "--clients", "3", "--k", "500"),
        1,
        ["k=500 is more than the 150 rows of all sites together"],
    ),
    "k above all rows, central": ((*CENTRAL, "--k", "1000"), 2, ["k=1000", "150 rows"]),
    "no clients": (("run", "feca", "--data", "iris", "--clients", "0"), 2, ["clients", "got 0"]),
    "more clients than rows": (("run", "feca", "--data", "iris", "--clients", "151"), 2, ["(151)", "(150)"]),
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
    "not a site's name": ((*OWN, "spaced", "--partition", "none"), 2, ["'site one' cannot be a site's name"]),
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
    "seed below 0": ((*IRIS, "--seed", "-1"), 2, ["seed", "got -1"]),
    "no time": ((*IRIS, "--task-timeout", "0"), 2, ["task_timeout", "got 0"]),
    "setting without a value": ((*IRIS, "--set", "n_init"), 2, ["--set expects key=value"]),
    "setting twice": ((*IRIS, "--set", "n_init=1", "--set", "n_init=2"), 2, ["'n_init' twice"]),
    "setting out of range": ((*IRIS, "--set", "n_init=0"), 2, ["n_init", "at least 1"]),
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


@pytest.mark.parametrize("args", [("--seed", "many"), ("--no-such-option",), ("--clients", "2.5")])
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
    assert printed["clients"] == 4
    assert len(printed["warnings"]) == 1
    assert printed["warnings"][0].startswith(warning)
    assert "secret" not in done.out
    assert str(tmp_path) not in printed["warnings"][0]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == FILES
    command(*common, "--data", "without", "--out", "b")
    with np.load(tmp_path / "a/result.npz") as a, np.load(tmp_path / "b/result.npz") as b:
        assert {name: a[name].tolist() for name in a} == {name: b[name].tolist() for name in b}


def test_k_above_one_site_only_goes_on_with_a_warning(command):
    done = command("run", "feca", "--data", "iris", "--clients", "3", "--partition", "power:2.5", "--k", "15", *FAST)
    assert done.code == 0, done.err
    assert "site-3 has fewer rows than k=15" in json.loads(done.out)["warnings"]


def test_fewer_centroids_than_k_are_said(command, tmp_path):
    """Two places only: k-means may find no third cluster, and none may be made up."""
    write(tmp_path / "two.csv", [[x, float(y)] for x in (0.0, 9.0) for y in range(2)] * 5)
    done = command("run", "kfed", "--data", "two.csv", "--k", "4", "--clients", "1", "--set", "k_local=2", *FAST)
    printed = json.loads(done.out)
    assert printed["centroids_found"] == 2
    assert "2 centroids were found where k=4 were asked for" in printed["warnings"]
