"""The page that compares the cells of a study."""

import re
from xml.etree import ElementTree

from flareclust.experiment.sweep_compare import compare_page
from flareclust.experiment.trials import Trial, TrialResult, TrialRun


def run(cell, seed, params=None, error=None, **final):
    trial = Trial(cell, seed, {"algorithm": "kfed", "params": params or {}}, measure=lambda: TrialResult(final))
    return TrialRun(trial, None if error else TrialResult(final), error)


def cell(algorithm, partition="iid", **more):
    return {"algorithm": algorithm, "partition": partition, **more}


def drawings(page):
    """Return each chart by its heading, parsed: so it is well-formed, too."""
    found = re.findall(r"<h3>(.*?)</h3>(<svg.*?</svg>)", page)
    return {heading: ElementTree.fromstring(svg) for heading, svg in found}


def test_bars_reach_one_deviation_to_each_side_of_the_mean():
    done = [run(cell("a"), 0, ari=0.2), run(cell("a"), 1, ari=0.6), run(cell("b"), 0, ari=1.0)]
    chart = drawings(compare_page("s", done, ["ari"]))["ari; larger is better"]
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
    page = compare_page("s", done, ["inertia", "ari"])
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


def test_splits_are_named_above_their_cells():
    done = [run(cell(a, p), 0, l2=1.0) for a in ("a", "b") for p in ("iid", "beta:1")]
    chart = drawings(compare_page("s", done, ["l2"]))["l2; smaller is better"]
    texts = [text.text for text in chart.iter("text")]
    assert [text for text in texts if text in ("a", "b", "iid", "beta:1")] == ["iid", "a", "b", "beta:1", "a", "b"]


def test_the_page_says_what_failed_and_needs_nothing_else():
    done = [run(cell("a<b>"), 0, error="few <rows>"), run(cell("a<b>"), 1, ari=0.5)]
    page = compare_page("<study>", done, ["ari"])
    assert "1 of 2 trials failed" in page
    assert "few &lt;rows&gt;" in page
    assert "<b>a" not in page
    assert "<study>" not in page
    assert not re.search(r"https?://|<script|<link|<img|@import", page)


def test_a_study_whose_trials_all_failed_has_a_page():
    assert "1 of 1 trials failed" in compare_page("s", [run(cell("a"), 0, error="no quorum")], [])
