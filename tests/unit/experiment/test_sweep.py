"""Sweeps without Prefect and MLflow: the file, its trials, going on, tables, the figure, the command."""

import csv
import json
import math
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.colors import to_hex

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.main import main
from flareclust.data import datasets
from flareclust.experiment import sweep_report as report_sweep
from flareclust.experiment import trials_file
from flareclust.experiment.sweep import Sweep, make_sweep, read_sweep, trials
from flareclust.experiment.sweep_figure import sweep_figure
from flareclust.experiment.trials import Cell, Trial, TrialResult, TrialRun, attempt_any, by_cell
from flareclust.experiment.trials_file import FileRunner
from flareclust.plotting.federation import PALETTE, save
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL).group(1)
IRIS = {"name": "try", "data": "iris", "algorithms": ["kfed"], "seeds": 2, "clients": 3}


def sweep(**settings):
    return make_sweep({**IRIS, **settings})


def trial(name="a", seed=0, partition="iid", measure=lambda: TrialResult({"l2": 1.0}), **params):
    return Trial({"algorithm": name, "partition": partition}, seed, params, measure)


# --- the file ---


def test_the_example_of_the_documentation_makes_the_trials_that_it_says(tmp_path):
    (tmp_path / "grid16.toml").write_text(EXAMPLE)
    made = trials(read_sweep(tmp_path / "grid16.toml"))
    assert len(made) == 40
    labels = ["feca", "kfed k_local=4", "kfed k_local=8", "pooled rows"]
    cells = [{"algorithm": label, "partition": p} for p in ("iid", "dirichlet:0.3") for label in labels]
    assert [dict(one.cell) for one in made[:8]] == cells
    assert [one.seed for one in made] == [seed for seed in range(5) for _ in range(8)]
    assert made[1].params["params"] == {"k_local": 4}


def test_the_documentation_lists_all_keys_with_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\| .* \|$", PAGE.split("## Output")[0], flags=re.MULTILINE)
    assert [name for name, _ in sorted(rows)] == sorted(Sweep.model_fields)
    for name, default in rows:
        field = Sweep.model_fields[name]
        if "`" in default:
            assert json.loads(default.strip(" `")) == field.default
        else:
            assert field.is_required() or field.default is None


def test_the_sweep_of_the_benchmark_has_240_trials_of_eight_algorithms(shared_data):
    made = trials(read_sweep(ROOT / "benchmarks" / "s1_sweep.toml"))
    assert len(made) == 240
    assert len({one.params["algorithm"] for one in made}) == 8
    assert len({one.key("s") for one in made}) == 240


def test_cells_name_data_and_k_only_where_they_vary():
    assert trials(sweep(data=["iris", "wine"], k=[3, 4]))[-1].name == "kfed/iid/wine/4/s1"
    assert trials(sweep(k=3))[0].name == "kfed/iid/s0"


def test_all_values_of_settings_are_combined():
    made = trials(sweep(seeds=1, algorithms=[{"name": "kfed", "label": "K", "k_local": [2, 3], "min_count": [1, 2]}]))
    assert [(one.cell["algorithm"], one.params["params"]) for one in made] == [
        (f"K k_local={k} min_count={c}", {"k_local": k, "min_count": c}) for k in (2, 3) for c in (1, 2)
    ]


def test_a_setting_that_is_a_list_takes_a_list_of_lists():
    made = trials(sweep(seeds=1, algorithms=[{"name": "portfolio", "members": [["feca", "kfed"], ["feca", "pooled"]]}]))
    assert [one.params["params"]["members"] for one in made] == [["feca", "kfed"], ["feca", "pooled"]]
    assert [one.cell["algorithm"] for one in made] == ["portfolio members=feca+kfed", "portfolio members=feca+pooled"]


def test_a_trial_measures_what_a_run_measures():
    (one,) = trials(sweep(seeds=[4], algorithms=[{"name": "kfed", "k_local": 2}]))
    measured = one.measure()
    result = flareclust.run("kfed", data="iris", clients=3, seed=4, k_local=2)
    assert {name: measured.final[name] for name in result.metrics} == result.metrics
    assert measured.final["centroids_found"] == result.centroids_found
    assert measured.cost["bytes_up"] == result.bytes["up"]
    assert [row["round"] for row in measured.rounds] == [0.0]


def test_yardsticks_run_in_process_beside_the_simulator():
    made = trials(sweep(engine="simulator", algorithms=["kfed", "central"], seeds=1))
    assert [one.params["engine"] for one in made] == ["simulator", "inprocess"]


def test_data_are_loaded_once(monkeypatch):
    loaded = []
    load = datasets.load
    monkeypatch.setattr(datasets, "load", lambda name: loaded.append(name) or load(name))
    made = trials(sweep(data=["iris", "wine"], partitions=["iid", "dirichlet:1"], seeds=5))
    for one in made[:4]:
        one.measure()
    assert loaded == ["iris", "wine"]


def test_a_trial_is_the_same_wherever_its_file_is_and_another_when_the_data_change(tmp_path):
    def keys(folder, X):
        folder.mkdir(exist_ok=True)
        np.save(folder / "rows.npy", X)
        (folder / "s.toml").write_text('name="s"\ndata="rows.npy"\nk=2\nclients=2\nseeds=2\nalgorithms=["kfed"]')
        return [one.key("s") for one in trials(read_sweep(folder / "s.toml"))]

    X = np.random.default_rng(0).normal(size=(40, 2))
    first = keys(tmp_path / "a", X)
    assert keys(tmp_path / "b", X) == first
    assert not set(keys(tmp_path / "a", X + 1e-12)) & set(first)


def test_sites_with_files_of_their_own_are_swept_too(tmp_path):
    for site in ("north", "south"):
        (tmp_path / "sites").mkdir(exist_ok=True)
        np.save(tmp_path / "sites" / f"{site}.npy", np.random.default_rng(len(site)).normal(size=(30, 2)))
    made = trials(sweep(data=str(tmp_path / "sites"), partitions="none", k=2, min_sites=2))
    assert made[0].name == "kfed/none/s0"
    assert made[0].params["data"] == "sites"
    assert attempt_any(made[0]).measured.final["inertia"] > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 3}, r"unknown key 'seed' \(did you mean 'seeds'\?\)"),
        ({"name": ""}, "name must be a text"),
        ({"name": 3}, "name must be a text"),
        ({"data": []}, "data must be a text or a list of at least one"),
        ({"data": "iriss"}, "unknown data set 'iriss' .did you mean 'iris'"),
        ({"data": ["iris", "iris"]}, "data: 'iris' is there more than once"),
        ({"seeds": 0}, "seeds must be an integer of at least 1, got 0"),
        ({"seeds": True}, "seeds must be an integer"),
        ({"seeds": "3"}, "seeds must be an integer"),
        ({"seeds": []}, "seeds: expected at least one value, got an empty list"),
        ({"seeds": [1, 1]}, "seeds: 1 is there more than once"),
        ({"seeds": [2**32]}, "seeds must be less than 4294967296"),
        ({"seeds": 10**9}, "1000000000 trials, and at most 100000"),
        ({"k": []}, "k: expected at least one value"),
        ({"k": [3, 0]}, "k must be an integer of at least 1, got 0"),
        ({"k": [3, 3]}, "k: 3 is there more than once"),
        ({"clients": 2.5}, "clients must be an integer"),
        ({"clients": 400}, r"kfed/iid: more sites \(400\) than rows \(150\)"),
        ({"partitions": "iidd"}, "partitions: unknown partition 'iidd' .did you mean 'iid'"),
        ({"partitions": []}, "partitions must be a text or a list of at least one"),
        ({"partitions": ["dirichlet:.3", "dirichlet:0.30"]}, "partitions: 'dirichlet:0.3' is there more than once"),
        ({"partitions": "none"}, "there is no folder iris"),
        ({"engine": "simulater"}, "engine must be one of inprocess, simulator; got 'simulater' .did you mean"),
        ({"min_sites": 4}, "min_sites=4 is more than clients=3"),
        ({"workers": 0}, "workers must be an integer of at least 1"),
        ({"workers": 65}, "workers must be at most 64, got 65"),
        ({"mlflow_experiment": "a'b"}, "mlflow_experiment must be a text without quotes"),
        ({"algorithms": []}, "algorithms must be a list of at least one"),
        ({"algorithms": "kfed"}, "algorithms must be a list"),
        ({"algorithms": [3]}, "each of algorithms must be a name"),
        ({"algorithms": [{"label": "x"}]}, "each of algorithms must be a name"),
        ({"algorithms": ["kfedd"]}, "algorithms: unknown algorithm 'kfedd' .did you mean 'kfed'"),
        ({"algorithms": [{"name": "kfed", "klocal": 3}]}, "kfed has no parameter 'klocal' .did you mean 'k_local'"),
        ({"algorithms": [{"name": "kfed", "k_local": []}]}, "k_local of kfed: expected at least one value"),
        ({"algorithms": [{"name": "kfed", "k_local": [2, 2]}]}, "k_local of kfed: 2 is there more than once"),
        ({"algorithms": [{"name": "kfed", "min_count": 0}]}, "kfed/iid: min_count must be"),
        ({"algorithms": [{"name": "kfed", "label": "a/b"}]}, "label must be a text without slashes"),
        ({"algorithms": ["kfed", "kfed"]}, "the labels in algorithms: 'kfed' is there more than once"),
        ({"algorithms": ["kfed", {"name": "feca", "label": "kfed"}]}, "the labels in algorithms: 'kfed'"),
    ],
    ids=str,
)
def test_a_bad_sweep_is_refused_in_one_line_before_anything_runs(settings, words):
    with pytest.raises(UserError, match=words) as caught:
        trials(sweep(**settings))
    assert "\n" not in str(caught.value)


def test_data_without_known_k_ask_for_it(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((9, 2)))
    with pytest.raises(UserError, match="kfed/iid: k is not known"):
        trials(sweep(data=str(tmp_path / "rows.npy")))
    with pytest.raises(UserError, match='is a folder; for one file per site say partitions = "none"'):
        trials(sweep(data=str(tmp_path)))


def test_files_that_are_no_sweeps_are_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"absent\.toml cannot be read: No such file"):
        read_sweep(tmp_path / "absent.toml")
    (tmp_path / "s.toml").write_text("name = ")
    with pytest.raises(UserError, match=r"s\.toml is not a TOML file"):
        read_sweep(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text('name = "x"')
    with pytest.raises(UserError, match=r"s\.toml: the key 'data' is missing; the key 'algorithms' is missing"):
        read_sweep(tmp_path / "s.toml")


# --- running, and going on ---


class Counting:
    """A measure that counts its calls; it fails as long as `broken` says so."""

    def __init__(self, value: float = 1.0, broken: Exception | None = None) -> None:
        self.value, self.broken, self.calls = value, broken, 0

    def __call__(self) -> TrialResult:
        self.calls += 1
        if self.broken is not None:
            raise self.broken
        rounds = [{"round": 0.0, "moved": self.value / 3}, {"round": 1.0, "moved": 1e-17}]
        return TrialResult({"l2": self.value, "ari": None}, {"seconds": 0.1}, rounds)


def test_finished_trials_are_not_run_again_and_are_the_same_to_the_last_bit(tmp_path):
    measures = [Counting(1 / (i + 3)) for i in range(5)]
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate(measures)]
    seen = []
    first = FileRunner(tmp_path / "t.jsonl", "s", on_done=seen.append)(todo[:3])
    again = FileRunner(tmp_path / "t.jsonl", "s", on_done=seen.append)(todo)
    assert [measure.calls for measure in measures] == [1, 1, 1, 1, 1]
    assert [one.measured for one in again[:3]] == [one.measured for one in first]
    assert [one.resumed for one in again] == [True] * 3 + [False] * 2
    assert [one.trial.seed for one in again] == [0, 1, 2, 3, 4]
    assert len(seen) == 8
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [(line["seed"], line["final"]["l2"]) for line in lines] == [(i, 1 / (i + 3)) for i in range(5)]
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_failed_trials_are_answered_counted_and_run_again(tmp_path):
    good, foreseen, bug = Counting(), Counting(broken=JobFailed("no quorum")), Counting(broken=KeyError("oops"))
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate((foreseen, good, bug))]
    run = FileRunner(tmp_path / "t.jsonl", "s", workers=1)
    assert [one.error for one in run(todo)] == ["no quorum", None, "unexpected KeyError: 'oops'"]
    foreseen.broken = bug.broken = None
    assert [one.error for one in run(todo)] == [None] * 3
    assert (foreseen.calls, good.calls, bug.calls) == (2, 1, 2)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 3


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    measures = [Counting() for _ in range(3)]
    todo = [trial(seed=i, measure=measure) for i, measure in enumerate(measures)]
    run = FileRunner(tmp_path / "t.jsonl", "s")
    run(todo)
    text = (tmp_path / "t.jsonl").read_text()
    (tmp_path / "t.jsonl").write_text(text[:-20])
    run(todo)
    assert [measure.calls for measure in measures] == [1, 1, 2]
    assert [json.loads(line)["seed"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [0, 1, 2]


@pytest.fixture
def ctrl_c_raises():
    """Python's own answer to Ctrl-C, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interrupt_lets_running_trials_end_and_starts_no_other(tmp_path, monkeypatch):
    cancelled = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(trials_file, "ThreadPoolExecutor", Pool)

    def interrupted() -> TrialResult:
        ended = False
        while not ended:  # a signal just before the main thread starts to wait is only seen with the next one
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            ended = cancelled.wait(5)
        return TrialResult({"l2": 2.0})

    last = Counting()
    todo = [trial(seed=0), trial(seed=1, measure=interrupted), *(trial(seed=i, measure=last) for i in (2, 3))]
    run = FileRunner(tmp_path / "t.jsonl", "s", workers=1)
    with pytest.raises(KeyboardInterrupt):
        run(todo)
    assert last.calls == 0
    assert [json.loads(line)["seed"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [0, 1]
    assert [one.resumed for one in run(todo)] == [True, True, False, False]


def test_the_trials_of_another_study_are_never_mixed_in(tmp_path):
    run = FileRunner(tmp_path / "t.jsonl", "s")
    run([trial(rounds=3)])
    with pytest.raises(UserError, match="holds trials of another study, or with other settings"):
        run([trial(rounds=4)])
    with pytest.raises(UserError, match="holds trials of another study"):
        FileRunner(tmp_path / "t.jsonl", "other")([trial(rounds=3)])
    with pytest.raises(UserError, match="two trials of 's' are the same: a/iid/s0 and a/iid/s0"):
        run([trial(rounds=3), trial(rounds=3)])
    (tmp_path / "t.jsonl").write_text("[1]\n")
    with pytest.raises(UserError, match="is not a file of trials"):
        run([trial(rounds=3)])


def test_numbers_that_are_not_finite_are_stored_as_none_or_left_out():
    done = attempt_any(
        trial(measure=lambda: TrialResult({"a": math.nan, "b": math.inf, "c": 1}, {"x": math.nan}, [{"round": 0}]))
    )
    assert done.measured == TrialResult({"a": None, "b": None, "c": 1.0}, {}, [{"round": 0.0}])


def test_more_workers_come_to_the_same(tmp_path):
    todo = trials(sweep(algorithms=["kfed", "feca", "central"], partitions=["iid", "dirichlet:0.5"], seeds=3))
    alone = FileRunner(tmp_path / "1.jsonl", "s", workers=1)(todo)
    beside = FileRunner(tmp_path / "4.jsonl", "s", workers=4)(todo)
    assert [one.measured.final for one in alone] == [one.measured.final for one in beside]


# --- tables and figure ---

CELLS = [
    Cell({"algorithm": "feca", "partition": "iid"}, {"l2": 2.0, "ari": 0.5}, {"l2": 0.25, "ari": 0.0}, 4, 0),
    Cell({"algorithm": "a|b", "partition": "iid"}, {"l2": 100.0, "extra": 1 / 3}, {"l2": 3.0, "extra": 0.0}, 3, 1),
    Cell({"algorithm": "feca", "partition": "beta:1"}, {}, {}, 0, 4),
]


def test_the_markdown_table_has_every_quality_of_every_cell():
    assert report_sweep.markdown(CELLS) == (
        "| algorithm | partition | trials | l2 | ari | extra |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| feca | iid | 4 | 2.00 ± 0.25 | 0.50000 ± 0 | - |\n"
        "| a\\|b | iid | 3 of 4 | 100.0 ± 3.0 | - | 0.33333 ± 0 |\n"
        "| feca | beta:1 | 0 of 4 | - | - | - |\n"
    )


def test_the_csv_table_has_full_precision():
    head, *rows = csv.reader(report_sweep.comma_separated(CELLS).splitlines())
    measures = ["l2_mean", "l2_std", "ari_mean", "ari_std", "extra_mean", "extra_std"]
    assert head == ["algorithm", "partition", "done", "failed", *measures]
    assert float(rows[1][head.index("extra_mean")]) == 1 / 3
    assert rows[2] == ["feca", "beta:1", "0", "4", "", "", "", "", "", ""]


def test_cells_with_other_axes_share_a_table():
    cells = [Cell({"m": "2"}, {"x": 1.0}, {"x": 0.0}, 1, 0), Cell({"k": "3"}, {"x": 2.0}, {"x": 0.0}, 1, 0)]
    rows = [line.split(" | ") for line in report_sweep.markdown(cells).splitlines()]
    assert rows[0][:2] == ["| m", "k"]
    assert [row[:2] for row in rows[2:]] == [["| 2", ""], ["| ", "3"]]


def test_no_two_of_a_hundred_series_look_alike():
    cells = [Cell({"algorithm": str(i)}, {"l2": 1.0}, {"l2": 0.0}, 1, 0) for i in range(100)]
    lines = [bar.lines[0] for bar in sweep_figure(cells).axes[0].containers]
    assert len({(line.get_marker(), line.get_color()) for line in lines}) == 100


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (15.0, 0.0, "15 ± 0"),
        (0.0, 0.0, "0 ± 0"),
        (9566.89220369576, 1e-12, "9,566.9 ± 0"),
        (11318.7, 2127.9, "11,319 ± 2,128"),
        (0.98633, 0.00048, "0.98633 ± 0.00048"),
        (8.9327e12, 1.12e10, "8.933 ± 0.011 e12"),
        (0.5, 3.0, "0.5 ± 3.0"),
        (-0.3, 0.01, "-0.300 ± 0.010"),
        (1.234567e-5, 2e-6, "1.23 ± 0.20 e-5"),
        (1234567.0, 0.0, "1.2346 ± 0 e6"),
    ],
)
def test_means_have_as_many_digits_as_their_deviation_bears(mean, std, text):
    assert report_sweep.spread(Cell({}, {"x": mean}, {"x": std}, 3, 0), "x") == text


def test_each_reason_is_told_once():
    errors = ["few rows", "no quorum", "few rows", None]
    done = [TrialRun(trial(seed=i), None if error else TrialResult({}), error) for i, error in enumerate(errors)]
    assert report_sweep.reasons(done) == [("few rows", 2, "a/iid/s0"), ("no quorum", 1, "a/iid/s1")]
    assert report_sweep.summary(done)["failed"] == 3


def test_reasons_and_places_have_lines_of_their_own(capsys):
    fine, bad = TrialRun(trial(seed=0), TrialResult({"l2": 1.0})), TrialRun(trial(seed=1), None, "few rows")
    report_sweep.print_sweep([fine, bad], ["files: here"])
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1 of 2 trials failed:",
        "- a/iid/s1: few rows",
        "files: here",
    ]
    report_sweep.print_sweep([fine], ["files: here"])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_without_a_terminal_every_tenth_is_one_line(capsys):
    with report_sweep.sweep_progress(25) as on_done:
        for i in range(25):
            on_done(
                TrialRun(trial(seed=i), None if i == 24 else TrialResult({}), "bad" if i == 24 else None, resumed=i < 5)
            )
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" trials")[0] for line in lines] == [f"{n} of 25" for n in (3, 5, 8, 10, 13, 15, 18, 20, 23, 25)]
    assert lines[0] == "3 of 25 trials, done before"
    assert lines[-1] == "25 of 25 trials, 1 failed, 0 s left"


def marks(axes):
    """Return label -> (x, means, deviations down, deviations up, colour) of the error bars."""
    found = {}
    for bar in axes.containers:
        line, _, (segments,) = bar.lines
        x, mean = line.get_data()
        ends = np.array([segment[:, 1] for segment in segments.get_segments()])
        found[bar.get_label()] = (*map(list, (x, mean, mean - ends[:, 0], ends[:, 1] - mean)), to_hex(line.get_color()))
    return found


def test_the_figure_has_a_group_per_partition_and_a_mark_per_algorithm():
    cells = [
        Cell({"algorithm": a, "partition": p}, {"ari": m, "l2": 10 * m}, {"ari": 0.0, "l2": 1.5}, 5, 0)
        for a, p, m in [("x", "iid", 1.0), ("y", "iid", 2.0), ("x", "beta:1", 3.0)]
    ]
    figure = sweep_figure(cells, title="T")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["iid", "beta:1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
    found = marks(axes)
    x, mean, down, up, colour = found["x"]
    assert (mean, colour) == ([10.0, 30.0], PALETTE[0])
    np.testing.assert_allclose([down, up], 1.5)
    assert round(x[0]) == 0
    assert round(x[1]) == 1
    assert found["y"][1] == [20.0]
    assert found["y"][0][0] > x[0]
    assert axes.get_yscale() == "linear"
    assert "l2" in axes.get_ylabel()
    assert marks(sweep_figure(cells, metric="ari").axes[0])["x"][1] == [1.0, 3.0]


def test_means_far_apart_are_drawn_on_a_logarithmic_axis_with_bars_that_stay_above_nought():
    cells = [
        Cell({"algorithm": a, "partition": "iid"}, {"l2": m}, {"l2": s}, 5, 0)
        for a, m, s in [("x", 1, 5), ("y", 99, 1)]
    ]
    (axes,) = sweep_figure(cells).axes
    assert axes.get_yscale() == "log"
    assert marks(axes)["x"][2] == pytest.approx([0.9])
    assert marks(axes)["x"][3] == pytest.approx([5.0])


def test_further_axes_have_panels_and_cells_without_the_quality_no_mark(tmp_path):
    cells = [
        Cell({"algorithm": "$a_b$", "partition": "iid", "k": k}, mean, dict.fromkeys(mean, 0.1), len(mean), 1)
        for k, mean in [("3", {"inertia": 2.0}), ("4", {"inertia": 1.0}), ("5", {})]
    ]
    figure = sweep_figure(cells)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["k 3", "k 4", "k 5"]
    assert [list(marks(axes)) for axes in figure.axes] == [["$a_b$"], ["$a_b$"], []]
    assert save(figure, tmp_path / "f.png").stat().st_size > 1000


# --- the command ---


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the command in an empty folder that has a sweep of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_SERVER_LEVEL"):
        monkeypatch.setenv(name, "CRITICAL")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    (tmp_path / "s.toml").write_text(
        'name = "my sweep!"\ndata = "iris"\nclients = 3\nseeds = 2\nk = [3, 60]\nalgorithms = ["feca", "central"]\n'
    )

    def call(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["sweep", *args])
        return ended.value.code or 0, *capsys.readouterr()

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_example_of_the_documentation_runs(command, tmp_path):
    (tmp_path / "grid16.toml").write_text(EXAMPLE)
    code, out, err = command("grid16.toml", "--no-track")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:5] == ["algorithm", "partition", "trials", "l2", "ari"]
    assert len(rows) == 1 + 8 + 1
    assert err.splitlines()[-1] == "40 of 40 trials, 0 s left"
    (folder,) = (tmp_path / "flareclust-sweeps").iterdir()
    assert rows[-1] == ["files:", str(folder.relative_to(tmp_path))]
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "table.csv", "table.md", "trials.jsonl"]
    assert "These are 40 trials" in PAGE


def test_failed_trials_make_exit_code_1_and_are_explained_once(command, tmp_path):
    code, out, _ = command("s.toml", "--no-track", "--out", "o")
    assert code == 1
    assert "2 of 8 trials failed:" in out
    (line,) = (line for line in out.splitlines() if line.startswith("- "))
    assert line.startswith("- feca/iid/60/s0 and 1 more: round 0: 0 of 3 sites took part")
    assert "fewer rows than k=60" in line
    assert "2 of 8 trials failed:" in (tmp_path / "o" / "table.md").read_text()


def test_json_is_one_object_with_the_means_of_the_file(command, tmp_path):
    code, out, _ = command("s.toml", "--no-track", "--json", "--out", "o", "--workers", "1")
    told = json.loads(out)
    assert (code, told["trials"], told["done"], told["failed"], told["resumed"]) == (1, 8, 6, 2, 0)
    lines = [json.loads(line) for line in (tmp_path / "o" / "trials.jsonl").read_text().splitlines()]
    for cell in told["cells"]:
        finals = [line["final"]["inertia"] for line in lines if line["cell"] == cell["cell"] and line["final"]]
        assert cell["done"] == len(finals)
        if finals:
            assert cell["mean"]["inertia"] == np.mean(finals)
            assert cell["std"]["inertia"] == np.std(finals)
    assert json.loads(command("s.toml", "--no-track", "--json", "--out", "o")[1])["resumed"] == 6
    assert told["run_id"] is None


def test_an_interrupt_says_how_to_go_on(command, tmp_path, monkeypatch):
    from flareclust.experiment import trials_file

    def interrupt(run, numbers, workers):
        run(0)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(trials_file, "run_in_threads", interrupt)
        code, out, err = command("s.toml", "--no-track", "--out", "o")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        "error: interrupted; 1 of 8 trials are done and kept, the same command does the others"
    )
    assert json.loads(command("s.toml", "--no-track", "--json", "--out", "o")[1])["resumed"] == 1


def test_an_interrupt_counts_failed_trials_apart(command, monkeypatch):
    from flareclust.experiment import trials_file

    calls = []

    def attempt(trial):
        calls.append(trial)
        return TrialRun(trial, *((TrialResult({}), None) if len(calls) == 1 else (None, "no quorum")))

    def interrupt(run, numbers, workers):
        for number in range(3):
            run(number)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(trials_file, "attempt_any", attempt)
    monkeypatch.setattr(trials_file, "run_in_threads", interrupt)
    _, _, err = command("s.toml", "--no-track", "--out", "o")
    assert err.splitlines()[-1] == (
        "error: interrupted; 1 of 8 trials are done and kept, 2 failed, the same command does the others"
    )


def test_an_interrupt_that_a_library_turns_into_something_else_is_still_one(command, monkeypatch):
    from flareclust.experiment import trials_file

    def swallow(run, numbers, workers):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("as pydantic does") from None

    monkeypatch.setattr(trials_file, "run_in_threads", swallow)
    code, _, err = command("s.toml", "--no-track", "--out", "o")
    assert code == 130
    assert "0 of 8 trials" in err


def test_folders_with_other_things_are_left_alone(command, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.tex").write_text("mine")
    assert command("s.toml", "--no-track", "--out", "o")[::2] == (
        2,
        "error: o holds other files than a sweep's, such as thesis.tex; choose a new folder\n",
    )
    code, _, err = command("s.toml", "--no-track", "--out", "s.toml")
    assert code == 2
    assert "is not a folder that can be written to" in err
    assert command("s.toml", "--no-track", "--workers", "0")[0] == 2
    assert not (tmp_path / "flareclust-sweeps").exists()


def test_cells_of_the_table_are_those_of_the_trials():
    done = [attempt_any(trial(name, seed, measure=Counting(seed + 1.0))) for name in "ab" for seed in (0, 1)]
    assert [(cell.cell["algorithm"], cell.mean["l2"], cell.std["l2"]) for cell in by_cell(done)] == [
        ("a", 1.5, 0.5),
        ("b", 1.5, 0.5),
    ]
