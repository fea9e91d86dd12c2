"""The command line: what a run prints and writes, and the other commands."""

import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from importlib import import_module
from inspect import Parameter, signature

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS, Option
from flareclust.cli.entry import quieten
from flareclust.cli.main import _served
from flareclust.cli.settings import parse_settings, takes
from flareclust.data.datasets import names
from flareclust.protocol.registry import algorithms, executors
from tests.patience import PATIENCE
from tests.unit.cli.cli_cases import FAST, FILES, IRIS, TrialRun, rows, tree, write

KEYS = [
    *("algorithm", "engine", "seed", "k", "n_sites", "params", "rounds", "seconds", "bytes"),
    *("centroids_found", "metrics", "centroids_file", "warnings", "assessed"),
]


def in_a_process(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "flareclust", *args],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "FLARECLUST_DATA"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,  # the first process of a fresh clone compiles the kernels
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
    assert (printed["algorithm"], printed["engine"], printed["k"], printed["n_sites"]) == ("feca", "inprocess", 3, 3)
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
    assert steps == ["cluster", "assess", "profile", *["profile_bins"] * 4]
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
    assert command(*IRIS, *FAST, "--out", "mine", "--overwrite", "--k", "100").code == 1
    assert tree(tmp_path) == before
    assert command(*IRIS, *FAST, "--out", "mine", "--overwrite", "--seed", "1").code == 0
    assert json.loads((tmp_path / "mine" / "result.json").read_text())["seed"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_older_result_is_replaced_on_request_only(command, tmp_path):
    command(*IRIS, *FAST, "--out", "mine")
    before = tree(tmp_path)
    refused = command(*IRIS, *FAST, "--out", "mine", "--seed", "1")
    assert refused.code == 2
    assert "mine holds the result of another run" in refused.err
    assert "--overwrite" in refused.err
    assert tree(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert command(*IRIS, *FAST, "--out", "empty").code == 0


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

    monkeypatch.setattr("flareclust.experiment.submit.run_inprocess", interrupted)
    done = command(*IRIS, *FAST)
    assert (done.code, done.out) == (130, "")
    assert done.err.strip().splitlines()[-1].startswith("error: interrupted")
    assert tree(tmp_path) == {}


def test_an_interrupt_after_the_work_names_the_folder_of_the_result(command, monkeypatch):
    def interrupted(*args):
        keep(*args)
        raise KeyboardInterrupt

    keep = flareclust.flows.run.keep
    monkeypatch.setattr("flareclust.flows.run.keep", interrupted)
    done = command(*IRIS, *FAST, "--out", "new")
    assert done.code == 130
    assert done.err.splitlines()[-1] == (
        "error: interrupted; the result is in new; log it later with: flareclust log new"
    )


def test_an_interrupt_before_the_result_says_nothing_of_an_older_one(command, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    assert command(*IRIS, *FAST, "--out", "res").code == 0
    monkeypatch.setattr("flareclust.experiment.submit.run_inprocess", interrupted)
    done = command(*IRIS, *FAST, "--out", "res", "--overwrite")
    assert done.code == 130
    assert "the result is in" not in done.err


def test_sigterm_ends_a_run_as_an_interrupt_does(command, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "flareclust.experiment.submit.run_inprocess", lambda *args: os.kill(os.getpid(), signal.SIGTERM)
    )
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


@pytest.mark.parametrize(("words", "level"), [((), logging.WARNING), (("-v",), logging.INFO)])
def test_less_than_warnings_is_logged_with_verbose_only(command, monkeypatch, words, level):
    levels = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: levels.append(options["level"]))
    command(*words, "--version")
    assert levels == [level]


def test_list_names_every_algorithm_with_its_settings(command):
    table = {name: one for name, one in algorithms().items() if not one.federated or name in executors()}
    listed = {row["name"]: row for row in json.loads(command("list", "--json").out)}
    assert list(listed) == list(table)
    for name, algorithm in table.items():
        assert listed[name]["parameters"] == algorithm.parameters()
        assert listed[name]["federated"] == algorithm.federated
    assert listed["feca"]["sends"] == (
        "centroids float64 (k, d), radii float64 (k); before the rounds, where settings ask for it, in step names: codes int64 (d), salt int64 (); "
        "in step scales: cluster int64 (k), counts int64 (k), centroids float64 (k, d), m2 float64 (k, d); "
        "in step known_scales: rows int64 (), cluster int64 (k), counts int64 (k, d), "
        "centroids float64 (k, d), m2 float64 (k, d); "
        "in step bins: counts int64 (d, b); in step finer_bins: counts int64 (d, b)"
    )
    printed = command("list").out
    assert set(table) <= set(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    assert f"leaves a site: {listed['feca']['sends']}" in command("list", "feca").out


def test_list_shows_the_phases_and_stages_of_an_algorithm(command):
    listed = json.loads(command("list", "--stages", "lloyd", "--json").out)["lloyd"]
    last = ["rounds", "Assessment", "Placing", "ClusterProfiles", "ClusterOutcomes", "ReadRows"]
    assert [one["name"] for one in listed["phases"]][-6:] == last
    assert [one["name"] for one in listed["stages"]][:2] == ["PolicyStage", "MaskingStage"]
    printed = command("list", "--stages", "lloyd").out
    assert all(one["name"] in printed for one in (*listed["phases"], *listed["stages"]))
    assert "Phases of a job of dkmpp" in command("list", "--stages").out
    assert "without phases" in command("list", "--stages", "central").err


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
    assert (executor.params.k, executor.params.seed, executor.params.k_local) == (4, 5, 2)
    assert (aggregator.params.k, aggregator.params.seed, aggregator.params.lloyd_rounds) == (4, 5, 3)
    assert (controller.min_sites, controller.task_timeout) == (2, 7)


@pytest.mark.parametrize(("store", "words"), [(False, "no MLflow store"), (True, "port 5056 cannot be used")])
def test_ui_says_what_it_cannot_show(command, tmp_path, monkeypatch, store, words):
    monkeypatch.setattr("flareclust.cli.main._served", lambda *given: pytest.fail("was started"))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if store:
        (tmp_path / "runs.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 5056))
        taken.listen()
        done = command("ui", "--port", "5056", "--uri", f"sqlite:///{tmp_path}/runs.db")
    assert (done.code, words in done.err) == (2, True)


def test_ui_runs_mlflow_and_prints_the_address_once_it_answers(command, store, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what the command adds is for the program that it runs
    monkeypatch.setattr("flareclust.cli.main._served", lambda *given: calls.append(given) or 0)
    done = command("ui", "--port", "5055", "--uri", store)
    assert (done.code, done.err) == (0, "")
    ((argv, port, lines),) = calls
    assert re.search(r"^runs of flareclust: http://127.0.0.1:5055/#/experiments/\d+/runs\?", lines[0])
    assert (port, argv[0]) == (5055, sys.executable)
    assert argv[1:4] == ["-m", "mlflow", "ui"]
    assert store in argv
    assert argv[argv.index("--port") + 1] == "5055"


def test_lines_are_printed_once_a_port_answers_and_not_where_the_program_ends_before(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = [
        "import socket",
        f"with socket.create_server(('127.0.0.1', {port})) as s:",
        "    s.accept()",
        "    s.accept()",
    ]
    shown = []

    def say(text):
        shown.append(text)
        socket.create_connection(("127.0.0.1", port)).close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.echo", say)
        assert _served([sys.executable, "-c", "\n".join(lines)], port, ["page: here", "Ctrl-C ends it"]) == 0
        assert shown == ["page: here\nCtrl-C ends it"]
        assert _served([sys.executable, "-c", "raise SystemExit(3)"], port, ["page: here"]) == 3
    assert len(shown) == 1


def test_a_command_has_the_options_of_a_table_and_names_those_that_it_uses_itself(monkeypatch):
    seen = []

    monkeypatch.setitem(
        COMMANDS,
        "try",
        {"first": Option(int, "A.", 1), "names": Option(str, "B.", read=str.split), "last": Option(int, "C.", ...)},
    )

    @takes("try")
    def command(*, before: int, first: int, **asked: object) -> None:
        seen.append((before, first, asked))

    assert {name: one.default for name, one in signature(command).parameters.items()} == {
        "before": Parameter.empty,
        "first": 1,
        "names": None,
        "last": Parameter.empty,
    }
    command(before=0, first=3, names="a b", last=2)
    command(before=1, last=4)
    assert seen == [(0, 3, {"names": ["a", "b"], "last": 2}), (1, 1, {"names": None, "last": 4})]


def test_the_command_starts_without_what_only_some_commands_need():
    heavy = ("numpy", "pydantic", "numba", "nvflare", "mlflow", "prefect")
    code = f"import sys, flareclust.cli.main; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_lines_of_nvflare_about_each_try_to_connect_stay_off_the_terminal(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    quieten(handler)
    for name, text in (
        ("nvflare.fuel.f3.sfm.conn_manager", "Connector [CH00001] failed with exception ClientConnectorError"),
        ("nvflare.fuel.f3.cellnet.core_cell.CoreCell", "cannot send to 'server': target_unreachable"),
        ("nvflare.fuel.f3.sfm.conn_manager", "failed with exception: CERTIFICATE_VERIFY_FAILED"),
        ("nvflare.private.fed", "the disk is full"),
    ):
        handler.handle(logging.LogRecord(name, logging.ERROR, "", 0, text, None, None))
    assert shown.getvalue().splitlines() == ["failed with exception: CERTIFICATE_VERIFY_FAILED", "the disk is full"]
