"""Choosing k: the rules on judgements made by hand, ranges as users type them, and k = 15 on the S-sets."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.cli.main import main
from flareclust.evaluation import selection as choice
from flareclust.evaluation.criteria import RULES, KSelection, choose, elbow_depths, score_candidates
from flareclust.evaluation.scores import stack
from flareclust.evaluation.selection import parse_k
from flareclust.experiment.config import make_experiment
from flareclust.plotting import federation as plots
from flareclust.plotting.selection import choice_picture

NAN = float("nan")


def selection_with(**columns):
    """A judgement of k = 2, 3, 4, 5 in which everything is the same unless stated."""
    arrays = {name: np.ones(4) for name in ("inertia", "silhouette", "davies_bouldin", "separated")}
    arrays |= {name: np.array(values, dtype=float) for name, values in columns.items()}
    k = np.array([2, 3, 4, 5])
    pairs = np.repeat(k, k * (k - 1) // 2)
    return KSelection(k=k, ratios=np.linspace(0.1, 1.0, len(pairs)), ratios_of=pairs, **arrays)


# ---- the rules ----


@pytest.mark.parametrize(
    ("rule", "columns", "k"),
    [
        ("silhouette", {"silhouette": [0.1, 0.3, 0.7, 0.2]}, 4),
        ("silhouette", {"silhouette": [0.1, 0.7, 0.7, 0.2]}, 3),
        ("silhouette", {"silhouette": [NAN, 0.3, NAN, 0.2]}, 3),
        ("silhouette", {"silhouette": [NAN] * 4}, 2),
        ("davies-bouldin", {"davies_bouldin": [0.9, 0.3, 0.2, 0.4]}, 4),
        ("davies-bouldin", {"davies_bouldin": [0.9, NAN, 0.6, 0.6]}, 4),
        ("elbow", {"inertia": [100, 40, 30, 20]}, 3),
        ("elbow", {"inertia": [100, 80, 22, 20]}, 4),
        ("elbow", {"inertia": [10, 10, 10, 10]}, 2),
        ("separation", {"separated": [0.0, 0.2, 0.1, 0.3]}, 5),
        ("separation", {"separated": [0.0, 0.0, 0.0, 0.0]}, 2),
    ],
)
def test_rules_on_judgements_made_by_hand(rule, columns, k):
    found = selection_with(**columns)
    assert found.k[choose(found, rule)] == k


def test_elbow_depths_by_hand():
    """Over k = 2, 4, 6, 10 the line runs 1, .75, .5, 0; the inertia, scaled, is 1, .25, .125, 0."""
    depths = elbow_depths(np.array([2, 4, 6, 10]), np.array([90.0, 30.0, 20.0, 10.0]))
    np.testing.assert_allclose(depths, [0.0, 0.5, 0.375, 0.0], atol=1e-12)
    assert elbow_depths(np.array([2, 3]), np.array([9.0, 1.0])).tolist() == [0, 0]


def test_a_judgement_by_hand():
    """Rows -1, 1 | 9, 11 on a line, as one cluster of both pairs and a far centroid, and as two clusters."""
    task = stack([np.array([[5.0], [1000.0]]), np.array([[0.0], [10.0]])])
    total = {
        "rows": np.array(4),
        "sse": np.array([36 + 16 + 16 + 36.0, 4.0]),
        "silhouette": np.array([3.9, 3.2]),
        "spread": np.array([104.0, 4.0]),
        "counts": np.array([4, 0, 2, 2]),
        "scatter": np.array([20.0, 0.0, 2.0, 2.0]),
    }
    found = score_candidates(task, total)
    assert found.k.tolist() == [2, 2]
    assert found.inertia.tolist() == [104.0, 4.0]
    np.testing.assert_allclose(found.silhouette, [3.9 / 4, 3.2 / 4])
    np.testing.assert_allclose(found.davies_bouldin, [NAN, (1 + 1) / 10])  # undefined for one cluster with rows
    # The far centroid has no rows; it counts as one: Delta = sqrt(2 * 104 / n).
    expected = [995 / (np.sqrt(208 / 4) + np.sqrt(208)), 10 / (2 * np.sqrt(2 * 4 / 2))]
    np.testing.assert_allclose(found.ratios, expected)
    assert found.separated.tolist() == [1.0, 1.0]
    assert found.ratios_of.tolist() == [2, 2]


# ---- what users type ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (None, None)),
        (5, (5, None)),
        (np.int64(5), (5, None)),
        ("5", (5, None)),
        ("-5", (-5, None)),  # the experiment refuses it
        ("5..25", (None, (5, 25))),
        (" 2..2 ", (None, (2, 2))),
    ],
)
def test_numbers_and_ranges(text, expected):
    assert parse_k(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("25..5", "reversed; write 5..25"),
        ("1..5", "must start at 2 or more, got 1..5"),
        ("0..5", "must start at 2"),
        ("ten", "an integer or a range such as 5..25, got 'ten'"),
        ("", "an integer or a range"),
        ("5-25", "an integer or a range"),
        ("5...25", "an integer or a range"),
        ("5..", "an integer or a range"),
        ("-5..5", "an integer or a range"),
        ("2..5..8", "an integer or a range"),
        ("2.5..8", "an integer or a range"),
        (5.0, "an integer or a range"),
        (True, "an integer or a range such as 5..25, got True"),
        ((5, 25), "an integer or a range"),
    ],
)
def test_what_is_no_number_of_clusters_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        parse_k(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"k": "9..3"}, "reversed"),
        ({"k": "ten"}, "range such as"),
        ({"k": True}, "integer"),
        ({"k": "1..5"}, "start at 2"),
        ({"k": "2..5", "choose_by": "sillhouette"}, "did you mean 'silhouette'"),
        ({"k": "2..5", "algorithm": "central"}, "one k, not a range"),
        ({"k": "2..5", "algorithm": "pooled", "k_min": 3}, "k_min already"),
    ],
)
def test_a_run_refuses_them_before_it_starts(settings, words):
    with pytest.raises(UserError, match=words):
        flareclust.run(settings.pop("algorithm", "pooled"), data="iris", clients=3, **settings)


# ---- runs ----


def sites(k=4, m=4, n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    centers = 30 * np.array(list(np.ndindex(*(2,) * d)))[:k]
    return {f"site-{i}": np.repeat(centers, n, axis=0) + rng.normal(size=(k * n, d)) for i in range(m)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("algorithm", ["pooled", "kfed"])
def test_clear_clusters_are_counted_by_every_rule(algorithm, rule):
    result = flareclust.run(algorithm, sites(), k="2..7", choose_by=rule)
    assert result.k == result.centroids_found == 4
    assert not result.warnings
    told = result.to_json()["choice"]
    assert told["k"] == [2, 3, 4, 5, 6, 7]
    assert told["rules"] == dict.fromkeys(RULES, 4)


def test_the_scores_of_a_run_are_those_of_its_rows():
    """What the sites' sums come to for the k chosen equals the assessment of the result, and the rows themselves."""
    data = sites()
    result = flareclust.run("pooled", data, k="2..5")
    told = result.to_json()["choice"]
    rows = np.concatenate([data[site] for site in sorted(data)])
    inertia = (np.linalg.norm(rows[:, None] - result.centroids[None], axis=2).min(axis=1) ** 2).sum()
    assert told["inertia"][2] == pytest.approx(inertia)
    for name in ("inertia", "simplified_silhouette", "davies_bouldin"):
        assert told[name][2] == pytest.approx(result.metrics[name])
    assert told["inertia"] == sorted(told["inertia"], reverse=True)
    json.dumps(told, allow_nan=False)


def test_another_algorithm_runs_as_if_it_had_been_given_the_k():
    result = flareclust.run("kfed", sites(), k="2..7", seed=3)
    alone = flareclust.run("kfed", sites(), k=4, seed=3)
    np.testing.assert_array_equal(result.centroids, alone.centroids)
    np.testing.assert_array_equal(result.labels, alone.labels)
    chooser = flareclust.run("pooled", sites(), k="2..7", seed=3)
    assert result.to_json()["choice"] == chooser.to_json()["choice"]
    assert result.rounds == 1 + 2  # the chooser's upload and scores come first
    assert result.bytes["up"] > alone.bytes["up"]
    assert "choice" not in alone.to_json()


def test_rounds_are_numbered_through_and_the_choosers_assessment_is_left_out():
    records = []
    experiment = make_experiment(algorithm="kfed", k="2..5", engine="inprocess", data="own", clients=4)
    from flareclust.experiment.prepare import prepare_sites
    from flareclust.experiment.run import submit

    outcome = submit(experiment, prepare_sites(experiment, sites()), records.append)
    assert [(record["round"], record["step"]) for record in outcome.rounds] == [
        (0, "cluster"),
        (1, "score"),
        (2, "cluster"),
        (3, "assess"),
    ]
    assert [record["step"] for record in records].count("assess") == 1
    assert choice.chosen_k(outcome.arrays) == 4


def test_min_count_holds_for_the_choosing_job_as_well():
    with pytest.raises(JobFailed, match="fewer rows than min_count=500"):
        flareclust.run("kfed", sites(), k="2..5", min_count=500)


def test_a_range_that_no_site_has_rows_for_fails_with_advice():
    small = {site: rows[::20] for site, rows in sites().items()}
    with pytest.raises(JobFailed, match=r"too few to try k=90; end the range of k at \d+ or less"):
        flareclust.run("pooled", small, k="2..90")


def test_a_range_whose_scores_would_tell_the_rows_fails_with_advice():
    small = {site: rows[::10] for site, rows in sites().items()}
    with pytest.raises(
        JobFailed, match=r"too few rows to compare k=2\.\.20 .* 716 values .* give a smaller range of k"
    ):
        flareclust.run("pooled", small, k="2..20")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["s1", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("s2", "s3", "s4"))]
)
def test_fifteen_clusters_are_found_in_the_s_sets(name, shared_data):
    """Ten seeds in the documents (39 of 40); three here."""
    picked = [flareclust.run("pooled", data=name, k="5..25", seed=seed).k for seed in range(3)]
    assert picked == [15, 15, 15]


def test_another_algorithm_gets_fifteen_too(shared_data):
    assert flareclust.run("feca", data="s1", k="5..25", choose_by="davies-bouldin", n_init=3).centroids_found == 15


# ---- the command line ----


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
    arguments = ("run", "pooled", "--data", table, "--k", "2..6", "--choose-by", "davies-bouldin", *FAST)
    assert call(*arguments, "--json", "--out", "here") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["k"] == 4
    assert printed["choice"]["rules"]["davies-bouldin"] == 4
    assert len(printed["choice"]["separated"]) == 5
    saved = json.loads((tmp_path / "here" / "result.json").read_text())
    assert saved["choice"] == printed["choice"]
    assert saved["experiment"]["k_range"] == [2, 6]
    assert saved["experiment"]["choose_by"] == "davies-bouldin"
    with np.load(tmp_path / "here" / "result.npz", allow_pickle=False) as arrays:
        assert choice.summary(arrays) == printed["choice"]
    assert (tmp_path / "here" / "choice.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_a_choice_takes_the_old_picture_away(table, tmp_path, capsys):
    run = ("run", "pooled", "--data", table, *FAST, "--out", "here")
    assert call(*run, "--k", "2..5") == 0
    assert (tmp_path / "here" / "choice.png").exists()
    assert "k=4 was chosen from 2..5" in " ".join(capsys.readouterr().out.split())
    assert call(*run, "--k", "4") == 0
    assert not (tmp_path / "here" / "choice.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--k", "25..5"), "reversed; write 5..25"),
        (("--k", "ten"), "range such as 5..25"),
        (("--k", "1..5"), "must start at 2"),
        (("--k", "2..5", "--choose-by", "elbo"), "did you mean 'elbow'"),
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
        inertia=[100, 40, 30, 20],
        silhouette=[0.1, 0.2, 0.9, 0.3],
        davies_bouldin=[0.9, 0.8, 0.7, 0.1],
        separated=[0.5, 0.1, 0.1, 0.1],
    )
    figure = choice_picture(known)
    assert isinstance(figure, Figure)
    *panels, pairs = figure.axes
    shown = {"silhouette": (known.silhouette, 4), "davies-bouldin": (known.davies_bouldin, 5)}
    shown |= {"elbow": (known.inertia, 3), "separation": (known.separated, 2)}
    for axes, (rule, (values, k)) in zip(panels, shown.items(), strict=True):
        (line,), (mark,), (words,) = of(axes, "measure"), of(axes, "chosen"), of(axes, "rule")
        np.testing.assert_array_equal(line.get_xydata(), np.column_stack([known.k, values]))
        np.testing.assert_array_equal(mark.get_xydata(), [[k, values[k - 2]]])
        assert words.get_text() == f"{rule}: k = {k}"
    medians = {line.get_xdata().mean(): line.get_ydata()[0] for line in of(pairs, "median")}
    assert list(medians) == [2, 3, 4, 5]
    for k, median in medians.items():
        assert median == pytest.approx(np.median(known.ratios[known.ratios_of == k]))
    assert of(pairs, "c0")[0].get_ydata()[0] == 0.5


def test_pictures_of_odd_judgements_can_be_drawn(tmp_path):
    one = KSelection(*(np.array([value]) for value in (2, 1.0, NAN, NAN, 0.0, 0.3, 2)))
    unsure = selection_with(silhouette=[NAN] * 4, davies_bouldin=[NAN, 1, NAN, 2])
    for known in (one, unsure):
        assert plots.save(choice_picture(known), tmp_path / "choice.png").stat().st_size > 1000


def test_the_same_judgement_gives_the_same_bytes(tmp_path):
    first, second = (plots.save(choice_picture(selection_with()), tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second
