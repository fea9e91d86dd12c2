"""Plain errors of `flareclust.run` for data and settings that cannot be."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.results import artifacts
from tests.unit.experiment.api_cases import rows

# --- requests that cannot be carried out ---


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a.b", "a,b", "a\n", "server", 1, None, ("a",)])
def test_names_that_cannot_be_site_names(own, name):
    with pytest.raises(UserError, match="cannot be a site's name"):
        flareclust.run("feca", {name: rows(), **own}, k=3)


NO_TABLES = {
    "one axis": (np.ones(5), "expected a 2-D array"),
    "three axes": (np.ones((2, 2, 2)), "expected a 2-D array"),
    "strings": (np.array([["a", "b"]]), "expected real numbers"),
    "objects": (np.array([[1.0, None]]), "not numeric"),
    "complex": (np.array([[1j, 2.0]]), "expected real numbers"),
    "ragged": ([[1.0, 2.0], [3.0]], "differ in length"),
    "NaN": (np.array([[1.0, np.nan], [3.0, 4.0]]), "NaN"),
    "masked": (np.ma.masked_greater(rows(), 15.0), "missing"),
    "no rows": (np.empty((0, 2)), "no rows"),
    "None": (None, "expected a 2-D array"),
    "unknown name": ("irris", "did you mean 'iris'"),
    "no sites": ({}, "no sites"),
    "site with one axis": ({"a": np.ones(5)}, "a: expected a table"),
    "site with strings": ({"a": np.array([["x", "y"]])}, "a: expected a numeric array"),
    "site with complex": ({"a": np.ones((4, 2)) * 1j}, "a: expected"),
    "site with None": ({"a": None}, "a: expected"),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_data_that_are_no_table_of_numbers(case):
    data, message = NO_TABLES[case]
    with pytest.raises(UserError, match=message):
        flareclust.run("feca", data, k=1, n_sites=1)


def test_masked_rows_of_a_site_count_as_missing(own):
    """What lies under a mask must not come back."""
    result = flareclust.run("feca", own | {"masked": np.ma.masked_greater(rows(9), 15.0)}, k=3)
    assert [warning.split()[0] for warning in result.warnings] == ["masked"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "fecca"}, "did you mean 'feca'"),
        ({"k": None}, "k is not known"),
        ({"k": 0}, "k must be an integer .*, got 0"),
        ({"k": 2.5}, "k must be an integer .*, got 2.5"),
        ({"k": True}, "k must be an integer .*, got True"),
        ({"seed": -1}, "seed must be an integer .*, got -1"),
        ({"n_sites": 0}, "n_sites must be an integer .*, got 0"),
        ({"n_sites": 31}, r"more sites \(31\) than rows \(30\)"),
        ({"partition": "clusters:2"}, "class label"),
        ({"partition": "none"}, "none"),
        ({"engine": "pod"}, "engine must be one of inprocess, devices, simulator, poc, production; got 'pod'"),
        ({"min_sites": 0}, "min_sites must be an integer .*, got 0"),
        ({"task_timeout": 0}, "task_timeout must be an integer .*, got 0"),
        ({"n_inits": 2}, "did you mean 'n_init'"),
        ({"n_init": print}, "n_init must be an integer"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings, message):
    algorithm = settings.get("algorithm", "feca")
    others = {"k": 3, "n_sites": 2} | {name: value for name, value in settings.items() if name != "algorithm"}
    with pytest.raises(UserError, match=message):
        flareclust.run(algorithm, rows(), **others)


def test_too_few_sites_fail_with_all_reasons(own):
    bad = {site: np.full_like(X, np.nan) if site > "site-b" else X for site, X in own.items()}
    with pytest.raises(JobFailed, match=r"2 of 4 sites .* 2 sites \(site-c, site-d\): each has rows with NaN"):
        flareclust.run("feca", bad, k=3)


@pytest.mark.parametrize("bad", [np.full((5, 2), np.nan), np.ones((5, 3))], ids=["NaN", "wide"])
def test_central_names_the_site_whose_rows_it_cannot_pool(own, bad):
    with pytest.raises(UserError, match="site-x"):
        flareclust.run("central", own | {"site-x": bad}, k=3)


# --- imports ---


def test_a_result_that_can_be_written_nowhere_is_a_failed_job(monkeypatch, tmp_path):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifacts.tempfile, "TemporaryDirectory", full)
    with pytest.raises(JobFailed, match=r"could not be kept: .*cannot be written to .*No space left on device"):
        flareclust.run("pooled", data="iris", n_sites=2, out=tmp_path / "out")
