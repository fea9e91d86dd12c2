"""`flareclust.stability` and its command."""

import json
import re
import shlex
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.results.matching import _renumbered
from tests.command_line import call
from tests.unit.experiment.stability_cases import blobs


def noise(sites=3, n=120):
    rng = np.random.default_rng(0)
    return {f"s{i}": rng.uniform(size=(n, 4)) for i in range(sites)}


def test_separated_clusters_are_stable():
    found = flareclust.stability("feca", blobs(), 3, repeats=4)
    assert [one.word for one in found.clusters] == ["stable"] * 3
    assert [one.jaccard for one in found.clusters] == [1, 1, 1]
    assert [one.rows for one in found.clusters] == [120, 120, 120]
    assert found.repeats == {"seeds": 4, "rows": 4, "sites": 3}
    assert found.warnings == ()


def test_pieces_of_uniform_noise_are_not():
    found = flareclust.stability("lloyd", noise(), 5, repeats=4)
    assert {one.word for one in found.clusters} == {"unstable"}


def test_a_cluster_that_one_site_has_alone_is_unstable_without_that_site():
    sites = blobs()
    sites["s0"] = np.concatenate([sites["s0"], np.random.default_rng(1).normal((60, 60), 1, (40, 2))])
    found = flareclust.stability("central", sites, 4, repeats=3)
    own = found.result.predict([[60, 60]])[0]
    assert found.clusters[own].rows == 40
    assert found.indices["sites"].shape == (3, 4)
    # Without s0, three blobs are cut into four: the rows at (60, 60) go with a larger cluster.
    assert found.indices["sites"][0, own] < 0.6 < found.indices["sites"][1:, own].min()
    assert found.clusters[own].left_out == pytest.approx(found.indices["sites"][:, own].mean())
    assert found.clusters[own].jaccard <= found.clusters[own].left_out


def test_the_indices_of_a_site_left_out_are_those_of_scikit_learn():
    sites = blobs()
    found = flareclust.stability("central", sites, 2, repeats=3)
    rows, labels = np.concatenate(list(sites.values())), found.result.labels
    for i, site in enumerate(sites):
        rest = np.concatenate([X for name, X in sites.items() if name != site])
        other = KMeans(2, n_init=20, random_state=0).fit(rest).predict(rows)
        for c in range(2):
            best = max(((labels == c) & (other == e)).sum() / ((labels == c) | (other == e)).sum() for e in range(2))
            assert found.indices["sites"][i, c] == pytest.approx(best, abs=0.02)


def test_the_same_seed_gives_the_same_study_and_another_seed_another():
    first, again, other = (flareclust.stability("kfed", noise(), 3, repeats=2, seed=s).to_json() for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_of_a_range_of_k_the_repeats_have_the_selected_one():
    found = flareclust.stability("feca", blobs(), "2..5", repeats=2)
    assert found.k == found.result.k == len(found.clusters) == 3
    assert [one.word for one in found.clusters] == ["stable"] * 3


def test_settings_that_follow_from_the_data_hold_in_the_repeats(tmp_path):
    for site, X in blobs().items():
        lines = ["length,weight,sex", *(f"{a},{1000 * b},{'fm'[j % 2]}" for j, (a, b) in enumerate(X))]
        (tmp_path / f"{site}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = (
        "columns:\n  length: {type: number, unit: m}\n  weight: {type: number, unit: g}\n"
        "  sex: {type: category, values: [f, m]}\n"
    )
    (tmp_path / "schema.yaml").write_text(text, encoding="utf-8")
    schema = tmp_path / "schema.yaml"
    tables = tmp_path / "tables"
    tables.mkdir()
    for file in tmp_path.glob("*.csv"):
        file.rename(tables / file.name)
    found = flareclust.stability("feca", tables, 3, schema=schema, partition="none", repeats=3)
    assert found.result.params["scale"] == "standard"
    assert found.repeats == {"seeds": 3, "rows": 3, "sites": 3}
    assert len(found.clusters) == 3


def test_one_site_is_not_left_out():
    found = flareclust.stability("pooled", {"only": blobs(1)["s0"]}, 3, repeats=2)
    assert found.repeats["sites"] == 0
    assert np.isnan(found.clusters[0].left_out)
    assert found.to_json()["clusters"][0]["left_out"] is None
    assert found.clusters[0].word == "stable"
    assert "one site" in found.warnings[0]


def test_repeats_that_fail_are_counted_and_named():
    sites = {"a": blobs()["s0"], "b": np.zeros((3, 2))}
    found = flareclust.stability("central", sites, 4, repeats=2)
    assert found.repeats["sites"] == 1
    assert found.warnings[0].startswith("1 repeats with one site left out failed")


@pytest.mark.parametrize(
    ("algorithm", "settings", "text"),
    [
        ("feca", {"engine": "production"}, "real sites"),
        ("feca", {"kit": "kit"}, "leave out engine and kit"),
        ("feca", {"track": True}, "leave out track"),
        ("feca", {"repeats": 1}, "repeats must be"),
        ("masked", {}, "different columns"),
        ("fecca", {}, "feca"),
    ],
)
def test_what_cannot_be_repeated_is_refused_before_anything_runs(algorithm, settings, text):
    with pytest.raises(UserError, match=text):
        flareclust.stability(algorithm, "iris", 3, **settings)


def test_the_frame_has_a_line_per_cluster():
    found = flareclust.stability("kfed", blobs(), 3, repeats=2)
    frame = found.frame()
    assert list(frame["cluster"]) == [0, 1, 2]
    assert list(frame.columns) == ["cluster", "rows", "seeds", "resampled", "left_out", "jaccard", "word"]


def test_the_command_says_a_word_per_cluster(capsys):
    assert call("stability", "feca", "--data", "iris", "--n-sites", 3, "--repeats", 2) == 0
    text = capsys.readouterr().out
    assert text.count("stable") >= 3
    assert "other seeds" in text
    assert call("stability", "feca", "--data", "iris", "--n-sites", 3, "--repeats", 2, "--json") == 0
    assert [one["cluster"] for one in json.loads(capsys.readouterr().out)["clusters"]] == [0, 1, 2]
    assert call("stability", "feca", "--data", "iris", "--set", "n_sites=4") == 2
    assert "n_sites is no such setting" in capsys.readouterr().err


def test_the_report_of_the_run_has_a_word_and_a_figure_for_each_cluster(tmp_path):
    data = {site: pd.DataFrame(X, columns=["a", "b"]) for site, X in blobs().items()}
    found = flareclust.stability("lloyd", data, 4, repeats=2, out=tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Do the clusters come back?" in page
    assert len({one.word for one in found.clusters}) > 1
    for one in found.clusters:
        assert f"{one.word}: Jaccard index {one.jaccard:.2f} in repeated runs" in page
        assert f'<td class="n">{one.resampled:.2f}</td>' in page
    assert "6 repeats: 2 with other seeds, 2 with resampled rows, 2 with one site left out" in page
    assert "flareclust.stability(...) with the same rows and settings, and repeats=2" in page
    again = flareclust.load_result(tmp_path / "out")
    assert (again.stability, again.repeated) == (found.clusters, found.result.repeated)
    assert _renumbered(again, [1, 0, 3, 2]).stability[0] == replace(found.clusters[1], cluster=0)
    assert "come back" not in report_page(flareclust.run("lloyd", data, 4))


def test_the_command_writes_the_files_of_the_run_on_request(tmp_path, capsys):
    call_with = ("stability", "feca", "--data", "iris", "--n-sites", 3, "--repeats", 2, "--out", tmp_path / "out")
    assert call(*call_with) == 0
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out
    page = unescape((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    (command,) = re.findall(r"<pre>flareclust (stability [^<]*)</pre>", page)
    assert command == "stability feca --data iris --n-sites 3 --repeats 2"
    assert call(*shlex.split(command), "--out", tmp_path / "again") == 0
    first, again = (flareclust.load_result(tmp_path / name) for name in ("out", "again"))
    assert first.stability == again.stability
    assert call(*call_with) == 2
    assert "replace the result with --overwrite" in capsys.readouterr().err
    assert call(*call_with, "--overwrite") == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    assert call(*call_with[:-1], tmp_path / "mine") == 2
