"""The bars of a report's sites, with few clusters and with many."""

import pytest

from flareclust.experiment.report_charts import stacked


@pytest.mark.parametrize(("k", "many"), [(3, False), (12, False), (13, True), (30, True)])
def test_bars_of_many_clusters_are_marked_so_that_phones_hide_the_numbers(k, many):
    assert ('class="bar many"' in stacked([1 / k] * k)) is many
