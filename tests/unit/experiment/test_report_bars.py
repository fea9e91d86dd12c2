"""A report with few clusters and with many: bars, tables, maps, and clusters that are not described."""

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.experiment.reports.charts import RowMap
from flareclust.experiment.reports.html import stacked
from flareclust.experiment.reports.page import report_page
from flareclust.experiment.reports.terminal import _profile_lines


@pytest.mark.parametrize(("k", "many"), [(3, False), (12, False), (13, True), (30, True)])
def test_bars_of_many_clusters_are_marked_so_that_phones_hide_the_numbers(k, many):
    assert stacked([5] * k).many is many


@pytest.mark.parametrize(("k", "expected"), [(6, "heat"), (7, "heat many"), (12, "heat many"), (13, "heat dense")])
def test_tables_of_many_clusters_are_printed_smaller(k, expected):
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(k, 5)) * 100, 20, axis=0) + rng.normal(size=(20 * k, 5))
    frame = pd.DataFrame(rows, columns=list("abcde"))
    result = flareclust.run("lloyd", {"a": frame, "b": frame + 0.1}, k=k, profile=True)
    assert f'<table class="{expected}">' in report_page(result)


def test_a_map_says_what_its_directions_are(rng):
    one = RowMap({"a": rng.normal(size=(9, 1))}, {"a": np.zeros(9, dtype=int)}, np.zeros((1, 1)), ["age"])
    assert one.axes == ["age", "nothing"]
    spread = np.ones((9, 64)) * np.arange(9)[:, None] + rng.normal(size=(9, 64)) / 100
    many = RowMap({"a": spread}, {"a": np.zeros(9, dtype=int)}, np.zeros((1, 64)), [f"pixel {j}" for j in range(64)])
    assert many.axes[0] == "a mixture of many columns"


@pytest.mark.parametrize(("small", "words"), [(1, "1 cluster is not described"), (2, "2 clusters are not described")])
def test_clusters_that_are_not_described_are_counted(small, words, rng):
    centers = np.array([[0, 0], [0, 50], [90, 0], [0, 900], [900, 900]])[: 3 + small]
    rows = np.repeat(centers, [40, 40, 40, 2, 2][: 3 + small], axis=0) + rng.normal(size=(120 + 2 * small, 2))
    result = flareclust.run("pooled", {"a": pd.DataFrame(rows, columns=["x", "y"])}, k=3 + small, n_init=10)
    assert any(str(line).startswith(words) for line in _profile_lines(result))
