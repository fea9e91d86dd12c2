"""The page that compares the cells of a study."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import load
from flareclust.experiment.reports import html
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.cluster_means import ClusterMeans
from flareclust.experiment.sweeps.compare import compare_page
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.flows.study import StudyRunner


def run(cell, seed, params=None, error=None, **final):
    trial = study_trials.Trial(
        cell, seed, {"algorithm": "kfed", "params": params or {}}, measure=lambda: study_trials.TrialResult(final)
    )
    return study_trials.TrialRun(trial, None if error else study_trials.TrialResult(final), error)


def cell(algorithm, partition="iid", **more):
    return {"algorithm": algorithm, "partition": partition, **more}


def drawings(page):
    """Return each chart by its heading, parsed: so it is well-formed, too."""
    found = re.findall(r"<h3>(.*?)</h3>(<svg.*?</svg>)", page)
    return {heading: ElementTree.fromstring(svg) for heading, svg in found}


def test_bars_reach_one_deviation_to_each_side_of_the_mean():
    done = [run(cell("a"), 0, ari=0.2), run(cell("a"), 1, ari=0.6), run(cell("b"), 0, ari=1.0)]
    chart = drawings(compare_page("s", StudySummary.of(done)))["ari; larger is better"]
    bars = [g.findall("line")[1] for g in chart.findall("g")]
    marks = [float(g.find("circle").get("cx")) for g in chart.findall("g")]
    # from 0.2 (the lowest bar) to 1.0 on 314 units after the first 238
    assert [float(bars[0].get("x1")), marks[0], float(bars[0].get("x2"))] == [238.0, 238 + 314 / 4, 238 + 314 / 2]
    assert marks[1] == 238 + 314
    assert [g.get("font-weight") for g in chart.findall("g")] == [None, "bold"]


def test_only_comparable_cells_share_a_chart():
    done = [
        run(cell("a", data="iris"), 0, inertia=1.0, ari=0.5),
        run(cell("a scale=standard", data="iris"), 0, {"scale": "standard"}, inertia=2.0, ari=0.5),
        run(cell("a", data="wine"), 0, inertia=3.0, ari=0.5),
    ]
    page = compare_page("s", StudySummary.of(done))
    iris, wine = page.split("<h2>")[1:]
    assert (iris.startswith("data iris"), wine.startswith("data wine")) == (True, True)
    assert {heading: len(svg.findall("g")) for heading, svg in drawings(iris).items()} == {
        "inertia; smaller is better": 1,
        "inertia of scaled columns (standard); smaller is better": 1,
        "ari; larger is better": 2,
    }
    assert {heading: len(svg.findall("g")) for heading, svg in drawings(wine).items()} == {
        "inertia; smaller is better": 1,
        "ari; larger is better": 1,
    }


def test_columns_that_a_schema_scales_are_labelled_as_scaled(tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame({"age": rng.uniform(20, 90, 60), "crp": rng.uniform(0, 9, 60)}).to_csv(tmp_path / "t.csv", index=False)
    schema = "columns:\n  age: {type: number, unit: years}\n  crp: {type: number, unit: mg/l}\n"
    (tmp_path / "schema.yaml").write_text(schema)
    study = {"name": "s", "data": str(tmp_path / "t.csv"), "k": 2, "n_sites": 3, "seeds": 1}
    unscaled = {"name": "kfed", "scale": "none"}
    study |= {"algorithms": ["lloyd", "pooled", unscaled], "table_schema": str(tmp_path / "schema.yaml")}
    done = study_trials.run_plain(sweep_settings.trials(sweep_settings.Sweep(**study)))
    found = drawings(compare_page("s", StudySummary.of(done)))
    assert len(found["inertia of scaled columns (standard); smaller is better"].findall("g")) == 2
    assert len(found["inertia; smaller is better"].findall("g")) == 1


def test_other_distances_than_euclidean_have_charts_of_their_own():
    """Two measures of k-prototypes are no better or worse than those of k-means."""
    done = [run(cell("lloyd"), 0, {"metric": "euclidean"}, inertia=1.0, ari=0.5)]
    done += [run(cell("kprototypes"), 0, {"gamma": None, "scale": "standard"}, inertia=0.5, ari=0.5)]
    done += [run(cell("cosine"), 0, {"metric": "cosine"}, inertia=0.1, ari=0.5)]
    assert {
        heading: len(svg.findall("g")) for heading, svg in drawings(compare_page("s", StudySummary.of(done))).items()
    } == {
        "inertia; smaller is better": 1,
        "inertia of scaled columns (standard) by distances of k-prototypes; smaller is better": 1,
        "inertia by distances of cosine; smaller is better": 1,
        "ari; larger is better": 3,
    }


def test_splits_are_named_above_their_cells():
    done = [run(cell(a, p), 0, l2=1.0) for a in ("a", "b") for p in ("iid", "beta:1")]
    chart = drawings(compare_page("s", StudySummary.of(done)))["l2; smaller is better"]
    texts = [text.text for text in chart.iter("text")]
    assert [text for text in texts if text in ("a", "b", "iid", "beta:1")] == ["iid", "a", "b", "beta:1", "a", "b"]


def test_the_page_says_what_failed_and_needs_nothing_else():
    done = [run(cell("a<b>"), 0, error="few <rows>"), run(cell("a<b>"), 1, ari=0.5)]
    page = compare_page("<study>", StudySummary.of(done))
    assert "1 of 2 trials failed" in page
    assert "few &lt;rows&gt;" in page
    assert "<b>a" not in page
    assert "<study>" not in page
    assert not re.search(r"https?://|<script|<link|<img|@import", page)


def test_a_study_whose_trials_all_failed_has_a_page():
    assert "1 of 1 trials failed" in compare_page("s", StudySummary.of([run(cell("a"), 0, error="no quorum")]))


TEMPLATES = Path(html.__file__).parent / "templates"
REPORT, PARTS = TEMPLATES / "report.html", TEMPLATES / "parts.html"


def means(rows, centers, columns=("age", "crp<i>")):
    return ClusterMeans(columns, rows, centers, [0.5] * len(rows), [0.0, 0.0], [1.0, 2.0])


def with_clusters(cell, clusters, seed=0, **final):
    done = run(cell, seed, **final)
    return replace(done, measured=replace(done.measured, clusters=clusters))


def tables(page):
    """Return the texts of each table's cells, a list per line."""
    found = []
    for body in re.findall(r"<table.*?</table>", page, re.DOTALL):
        lines = ElementTree.fromstring(body).iter("tr")
        found.append([[" ".join("".join(cell.itertext()).split()) for cell in line] for line in lines])
    return found


def test_clusters_of_comparable_cells_are_matched_to_those_of_the_best():
    best = means([30, 70], [[1.0, 2.0], [-1.0, -2.0]])
    other = means([60, 40], [[-1.0, -1.8], [1.2, 2.0]])
    odd = means([50, 50], [[1.0, 2.0], [9.0, 9.0]])
    done = [
        with_clusters(cell("b"), other, ari=0.5),
        with_clusters(cell("a"), best, ari=0.9),
        with_clusters(cell("c"), odd, ari=0.1),
    ]
    page = compare_page("s", StudySummary.of(done))
    assert "Below each share is how far the cluster's mean is from that of its match: at 100 % it counts" in page
    shares, profiles = tables(page)
    assert shares == [
        ["share of the rows", "a", "b", "c"],
        ["cluster 0", "30 %", "40 %mean moved 40 %", "50 %mean moved 0 %"],
        ["cluster 1", "70 %", "60 %mean moved 20 %", "50 %another cluster"],
    ]
    assert profiles[0] == ["cluster", "column", "a", "b", "c"]
    # Of equally telling columns the first comes first, and the name is text.
    assert profiles[1] == ["cluster 0", "age", "1.0", "1.2", "1.0"]
    assert profiles[2] == ["", "crp<i>", "2.0", "2.0", "2.0"]


def test_ages_are_in_plain_words():
    both = [
        with_clusters(cell(name), means([1, 1], [[1.0, 2.0], [0, 0]], ("age(born, 2024-12-31)", "crp")))
        for name in "ab"
    ]
    (_, profiles) = tables(compare_page("s", StudySummary.of(both)))
    assert "age at 2024-12-31" in [line[1] for line in profiles]


def test_cells_of_other_data_or_other_columns_are_not_side_by_side():
    one = means([30, 70], [[1.0, 2.0], [-1.0, -2.0]])
    apart = [with_clusters(cell("a", data="x"), one, ari=1.0), with_clusters(cell("a", data="y"), one, ari=1.0)]
    assert tables(compare_page("s", StudySummary.of(apart))) == []
    renamed = replace(one, columns=("age", "bmi"))
    apart = [with_clusters(cell("a"), one, ari=1.0), with_clusters(cell("b"), renamed, ari=0.5)]
    assert tables(compare_page("s", StudySummary.of(apart))) == []


def test_a_split_is_said_and_what_has_no_partner_is_none():
    whole = means([50, 50], [[0.0, 0.0], [9.0, 0.0]])
    halves = means([25, 25, 50], [[0.0, 1.4], [0.0, -1.4], [9.0, 0.0]])
    done = [with_clusters(cell("a"), whole, ari=0.9), with_clusters(cell("b"), halves, ari=0.8)]
    assert tables(compare_page("s", StudySummary.of(done)))[0][-1] == [
        "split, merged",
        "",
        "cluster 0 of a was split into the clusters 0 and 2",
    ]
    done = [with_clusters(cell("a"), halves, ari=0.9), with_clusters(cell("b"), whole, ari=0.8)]
    shares = tables(compare_page("s", StudySummary.of(done)))[0]
    assert [line[2] for line in shares[1:4]].count("none") == 1


def test_a_trial_keeps_the_means_of_its_rows_and_its_file_has_them(tmp_path):
    sweep = sweep_settings.Sweep(name="s", data="iris", algorithms=["lloyd"], seeds=1, n_sites=3)
    (done,) = StudyRunner("s", file=tmp_path / "trials.jsonl", track=False)(sweep_settings.trials(sweep))
    found = done.measured.clusters
    result = flareclust.run("lloyd", "iris", n_sites=3)
    X = load("iris").X
    assert found.rows == np.bincount(result.labels).tolist()
    for r, mean in enumerate(found.means):
        np.testing.assert_allclose(mean, X[result.labels == r].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.center, X.mean(axis=0), rtol=1e-5)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = [np.sqrt((scaled[result.labels == r].var(axis=0)).sum()) for r in range(3)]
    np.testing.assert_allclose(found.spread, expected, rtol=1e-5)
    (again,) = StudyRunner("s", file=tmp_path / "trials.jsonl", track=False)(sweep_settings.trials(sweep))
    assert again.resumed
    assert again.measured.clusters == found


def test_a_trial_keeps_the_version_that_ran_it(tmp_path):
    file, sweep = (
        tmp_path / "trials.jsonl",
        sweep_settings.Sweep(name="s", data="iris", algorithms=["lloyd"], seeds=2, n_sites=3),
    )
    run = StudyRunner("s", file=file, track=False)
    assert {done.version for done in run(sweep_settings.trials(sweep))} == {flareclust.__version__}
    first, second = map(json.loads, file.read_text().splitlines())
    del first["version"]  # as earlier versions wrote it
    file.write_text("".join(json.dumps(line) + "\n" for line in (first, second | {"version": "0.2.0"})))
    done = run(sweep_settings.trials(sweep))
    assert [one.version for one in done] == ["before 0.3", "0.2.0"]
    assert "before 0.3 (1)" in StudySummary.of(done).notes()
    assert [json.loads(line)["version"] for line in file.read_text().splitlines()] == ["before 0.3", "0.2.0"]


def test_a_second_run_of_a_study_at_the_same_time_is_refused(tmp_path):
    """Both would write all lines of the file anew."""
    trials = sweep_settings.trials(
        sweep_settings.Sweep(name="s", data="iris", algorithms=["lloyd"], seeds=1, n_sites=3)
    )
    first, second = (StudyRunner("s", file=tmp_path / "trials.jsonl", track=False) for _ in range(2))
    with first.opened(trials), pytest.raises(UserError, match="another run is on the way to"), second.opened(trials):
        pass
    assert len(second(trials)) == 1


def test_it_is_printed_as_a_report_is():
    page, report = compare_page("s", StudySummary.of([run(cell("a"), 0, ari=0.9)])), REPORT.read_text(encoding="utf-8")
    shared = re.search(r"{% macro on_paper\(\) %}\n(.*?){% endmacro %}", PARTS.read_text(encoding="utf-8"), re.DOTALL)[
        1
    ]
    assert "@page { size: A4" in shared
    assert shared in page
    assert "parts.on_paper()" in report
    assert "@media print" not in report
