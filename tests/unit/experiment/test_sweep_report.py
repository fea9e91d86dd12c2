"""Tables, progress and figures of a sweep."""

import csv

import numpy as np
import pytest
from matplotlib.colors import to_hex

from flareclust.experiment.plotting.style import PALETTE, save
from flareclust.experiment.sweeps import report as sweep_report
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.figure import sweep_figure
from tests.unit.experiment.sweep_cases import trial

CELLS = [
    study_trials.Cell(
        {"algorithm": "feca", "partition": "iid"}, {"l2": 2.0, "ari": 0.5}, {"l2": 0.25, "ari": 0.0}, 4, 0
    ),
    study_trials.Cell(
        {"algorithm": "a|b", "partition": "iid"}, {"l2": 100.0, "extra": 1 / 3}, {"l2": 3.0, "extra": 0.0}, 3, 1
    ),
    study_trials.Cell({"algorithm": "feca", "partition": "beta:1"}, {}, {}, 0, 4),
]


def summary(cells):
    return sweep_report.StudySummary((), cells)


def test_the_markdown_table_has_every_quality_of_every_cell():
    assert summary(CELLS).markdown() == (
        "| algorithm | partition | trials | l2 | ari | extra |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| feca | iid | 4 | 2.00 ± 0.25 | 0.50000 ± 0 | - |\n"
        "| a\\|b | iid | 3 of 4 | 100.0 ± 3.0 | - | 0.33333 ± 0 |\n"
        "| feca | beta:1 | 0 of 4 | - | - | - |\n"
    )


def test_the_csv_table_has_full_precision():
    head, *rows = csv.reader(summary(CELLS).comma_separated().splitlines())
    measures = ["l2_mean", "l2_std", "ari_mean", "ari_std", "extra_mean", "extra_std"]
    assert head == ["algorithm", "partition", "done", "failed", *measures]
    assert float(rows[1][head.index("extra_mean")]) == 1 / 3
    assert rows[2] == ["feca", "beta:1", "0", "4", "", "", "", "", "", ""]


def test_cells_with_other_axes_share_a_table():
    cells = [
        study_trials.Cell({"m": "2"}, {"x": 1.0}, {"x": 0.0}, 1, 0),
        study_trials.Cell({"k": "3"}, {"x": 2.0}, {"x": 0.0}, 1, 0),
    ]
    rows = [line.split(" | ") for line in summary(cells).markdown().splitlines()]
    assert rows[0][:2] == ["| m", "k"]
    assert [row[:2] for row in rows[2:]] == [["| 2", ""], ["| ", "3"]]


def test_no_two_of_a_hundred_series_look_alike():
    cells = [study_trials.Cell({"algorithm": str(i)}, {"l2": 1.0}, {"l2": 0.0}, 1, 0) for i in range(100)]
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
    assert sweep_report.spread(study_trials.Cell({}, {"x": mean}, {"x": std}, 3, 0), "x") == text


def test_each_reason_is_reported_once():
    errors = ["few rows", "no quorum", "few rows", None]
    done = [
        study_trials.TrialRun(trial(seed=i), None if error else study_trials.TrialResult({}), error)
        for i, error in enumerate(errors)
    ]
    found = sweep_report.StudySummary.of(done)
    assert found.reasons == [("few rows", 2, "a/iid/s0"), ("no quorum", 1, "a/iid/s1")]
    assert found.to_json()["failed"] == 3


def test_reasons_and_places_have_lines_of_their_own(capsys):
    fine, bad = (
        study_trials.TrialRun(trial(seed=0), study_trials.TrialResult({"l2": 1.0})),
        study_trials.TrialRun(trial(seed=1), None, "few rows"),
    )
    sweep_report.print_sweep([fine, bad], ["files: here"])
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1 of 2 trials failed:",
        "- a/iid/s1: few rows",
        "files: here",
    ]
    sweep_report.print_sweep([fine], ["files: here"])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_trials_of_several_versions_are_named_wherever_the_table_is(capsys):
    old, new = (
        study_trials.TrialRun(trial(seed=0), study_trials.TrialResult({"l2": 1.0}), version="0.2.0"),
        study_trials.TrialRun(trial(seed=1), study_trials.TrialResult({"l2": 1.0}), version="0.3.0"),
    )
    sweep_report.print_sweep([old, new], ["files: here"])
    assert "several versions of flareclust, 0.2.0 (1) and 0.3.0 (1)" in capsys.readouterr().out
    failed = study_trials.TrialRun(trial(seed=2), None, "few rows", version="0.1.0")
    assert "several versions" not in sweep_report.StudySummary.of([new, failed]).notes(), "it is in no mean"


def test_without_a_terminal_every_tenth_is_one_line(capsys):
    with sweep_report.sweep_progress(25) as on_done:
        for i in range(25):
            on_done(
                study_trials.TrialRun(
                    trial(seed=i),
                    None if i == 24 else study_trials.TrialResult({}),
                    "bad" if i == 24 else None,
                    resumed=i < 5,
                )
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
        study_trials.Cell({"algorithm": a, "partition": p}, {"ari": m, "l2": 10 * m}, {"ari": 0.0, "l2": 1.5}, 5, 0)
        for a, p, m in [("x", "iid", 1.0), ("y", "iid", 2.0), ("x", "beta:1", 3.0)]
    ]
    figure = sweep_figure(cells, title="T")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["iid", "beta:1"]
    assert [line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]] == [0.5]  # between them
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
        study_trials.Cell({"algorithm": a, "partition": "iid"}, {"l2": m}, {"l2": s}, 5, 0)
        for a, m, s in [("x", 1, 5), ("y", 99, 1)]
    ]
    (axes,) = sweep_figure(cells).axes
    assert axes.get_yscale() == "log"
    assert marks(axes)["x"][2] == pytest.approx([0.9])
    assert marks(axes)["x"][3] == pytest.approx([5.0])


def test_further_axes_have_panels_and_cells_without_the_quality_no_mark(tmp_path):
    cells = [
        study_trials.Cell(
            {"algorithm": "$a_b$", "partition": "iid", "k": k}, mean, dict.fromkeys(mean, 0.1), len(mean), 1
        )
        for k, mean in [("3", {"inertia": 2.0}), ("4", {"inertia": 1.0}), ("5", {})]
    ]
    figure = sweep_figure(cells)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["k 3", "k 4", "k 5"]
    assert [list(marks(axes)) for axes in figure.axes] == [["$a_b$"], ["$a_b$"], []]
    assert save(figure, tmp_path / "f.png").stat().st_size > 1000
