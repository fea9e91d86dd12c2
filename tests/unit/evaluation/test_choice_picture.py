"""The command that chooses k, and its picture."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from flareclust.cli.main import main
from flareclust.evaluation import criteria
from flareclust.evaluation import selection as choice
from flareclust.experiment.plotting.selection import choice_picture
from flareclust.experiment.plotting.style import save
from tests.unit.evaluation.choice_cases import NAN, selection_with, sites


def call(*args):
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    return ended.value.code or 0


FAST = ("--engine", "inprocess", "--no-track")


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", X=np.concatenate(list(sites().values())))
    return "rows.npz"


def test_the_command_prints_the_choice_and_keeps_its_picture(table, tmp_path, capsys):
    arguments = ("run", "pooled", "--data", table, "--k", "2..6", "--criterion", "davies-bouldin", *FAST)
    assert call(*arguments, "--json", "--out", "here") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["k"] == 4
    assert printed["choice"]["rules"]["davies-bouldin"] == 4
    assert len(printed["choice"]["separated"]) == 5
    saved = json.loads((tmp_path / "here" / "result.json").read_text())
    assert saved["choice"] == printed["choice"]
    assert saved["experiment"]["k_range"] == [2, 6]
    assert saved["experiment"]["criterion"] == "davies-bouldin"
    with np.load(tmp_path / "here" / "result.npz", allow_pickle=False) as arrays:
        assert choice.summary(arrays, {}) == printed["choice"]
    assert (tmp_path / "here" / "choice.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_a_choice_takes_the_old_picture_away(table, tmp_path, capsys):
    run = ("run", "pooled", "--data", table, *FAST, "--out", "here")
    assert call(*run, "--k", "2..5") == 0
    assert (tmp_path / "here" / "choice.png").exists()
    assert "k=4 was chosen from 2..5" in " ".join(capsys.readouterr().out.split())
    assert call(*run, "--k", "4", "--overwrite") == 0
    assert not (tmp_path / "here" / "choice.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--k", "25..5"), "reversed; write 5..25"),
        (("--k", "ten"), "range such as 5..25"),
        (("--k", "1..5"), "must start at 2"),
        (("--k", "2..5", "--criterion", "elbo"), "did you mean 'elbow'"),
    ],
)
def test_bad_ranges_end_the_command_with_2(table, arguments, words, capsys):
    assert call("run", "pooled", "--data", table, *FAST, *arguments) == 2
    assert words in capsys.readouterr().err


# ---- the picture ----


def of(axes, gid):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def test_the_picture_marks_what_every_rule_picks():
    known = selection_with(
        calinski_harabasz=[10, 40, 30, 20],
        inertia=[100, 40, 30, 20],
        silhouette=[0.1, 0.2, 0.9, 0.3],
        davies_bouldin=[0.9, 0.8, 0.7, 0.1],
        separated=[0.5, 0.1, 0.1, 0.1],
    )
    figure = choice_picture(known)
    assert isinstance(figure, Figure)
    *panels, pairs = figure.axes
    shown = {
        "calinski-harabasz": (known.calinski_harabasz, 3),
        "silhouette": (known.silhouette, 4),
        "davies-bouldin": (known.davies_bouldin, 5),
    }
    shown |= {"elbow": (known.inertia, 3), "separation": (known.separated, 2)}
    for axes, (rule, (values, k)) in zip(panels, shown.items(), strict=True):
        (line,), (mark,), (words,) = of(axes, "measure"), of(axes, "chosen"), of(axes, "rule")
        np.testing.assert_array_equal(line.get_xydata(), np.column_stack([known.k, values]))
        np.testing.assert_array_equal(mark.get_xydata(), [[k, values[k - 2]]])
        assert words.get_text() == f"{rule}: k = {k}"
    numbered = [axes.xaxis.get_tick_params()["labelbottom"] for axes in panels]
    assert numbered == [False, False, False, False, True]  # all have the axis of the lowest
    medians = {line.get_xdata().mean(): line.get_ydata()[0] for line in of(pairs, "median")}
    assert list(medians) == [2, 3, 4, 5]
    for k, median in medians.items():
        assert median == pytest.approx(np.median(known.ratios[known.ratios_of == k]))
    assert of(pairs, "c0")[0].get_ydata()[0] == 0.5


def test_the_picture_shows_only_what_is_known():
    nothing = np.full(4, NAN)
    known = selection_with(silhouette=nothing, davies_bouldin=nothing, separated=nothing)
    figure = choice_picture(known._replace(ratios=np.empty(0), ratios_of=np.empty(0, dtype=np.int64)))
    assert [of(axes, "rule")[0].get_text() for axes in figure.axes] == ["calinski-harabasz: k = 2", "elbow: k = 2"]


def test_a_rule_of_an_algorithms_own_has_a_panel_over_the_whole_width():
    figure = choice_picture({3: 40.0, 4: 12.5, 5: 20.0}, "icl")
    (axes,) = figure.axes
    np.testing.assert_array_equal(of(axes, "measure")[0].get_xydata(), [[3, 40], [4, 12.5], [5, 20]])
    np.testing.assert_array_equal(of(axes, "chosen")[0].get_xydata(), [[4, 12.5]])
    assert of(axes, "rule")[0].get_text() == "icl: k = 4"
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("ICL", "number of clusters k")


def test_pictures_of_odd_judgements_can_be_drawn(tmp_path):
    one = criteria.KSelection(*(np.array([value]) for value in (2, 1.0, NAN, NAN, 0.0, 0.3, 2, NAN)))
    unsure = selection_with(silhouette=[NAN] * 4, davies_bouldin=[NAN, 1, NAN, 2])
    for known in (one, unsure):
        assert save(choice_picture(known), tmp_path / "choice.png").stat().st_size > 1000


def test_the_same_judgement_gives_the_same_bytes(tmp_path):
    first, second = (save(choice_picture(selection_with()), tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second
