"""What sites mean by their columns: a column in another unit is named, one whose patients are others is not."""

import importlib.util

import numpy as np
import pytest

import flareclust
from flareclust.evaluation.agreement import unit_warnings
from tests.paths import ROOT

COLUMNS = ("age", "crp", "tumour")


def hospitals(seed):
    """The patients of the tutorial's three hospitals as numbers, in the same units everywhere; NaN where a cell is empty."""
    path = ROOT / "examples" / "hospitals" / "make.py"
    spec = importlib.util.spec_from_file_location("make_hospitals", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    rng = np.random.default_rng(seed)
    found = {site: made.patients(rng, site) for site in made.HOSPITALS}
    return {
        site: np.array([[row[name] for name in COLUMNS] for row in rows], dtype=float) for site, rows in found.items()
    }


def said_of(sites):
    means, deviations = (np.array([f(X, axis=0) for X in sites.values()]) for f in (np.nanmean, np.nanstd))
    cells = np.array([(~np.isnan(X)).sum(axis=0) for X in sites.values()])
    return unit_warnings(list(sites), cells, means, deviations, COLUMNS)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("factor", "words"), [(0.1, "10 times smaller"), (100, "100 times larger"), (1e-3, "1,000 times")]
)
def test_another_unit_is_named_although_patients_differ_by_hospital(seed, factor, words):
    sites = hospitals(seed)
    assert said_of(sites) == []
    sites["south"][:, 2] *= factor
    [text] = said_of(sites)
    assert text.startswith("south: column 'tumour' is about")
    assert words in text


@pytest.mark.parametrize("factor", [25.4, 2.54, 1 / 0.45359237, 365.25, 1e6])
def test_units_that_sites_mix_up_are_known(factor):
    rng = np.random.default_rng(0)
    sites = {f"s{i}": rng.normal([50, 70, 37], [15, 12, 4], (200, 3)) for i in range(3)}
    sites["s1"][:, 1] *= factor
    [text] = said_of(sites)
    assert text.startswith("s1: column 'crp' is about")
    assert "larger" in text


def test_two_hospitals_of_which_one_has_centimetres_are_told(tmp_path):
    sites = {site: X[~np.isnan(X).any(axis=1)] for site, X in hospitals(0).items() if site != "west"}
    sites["south"][:, 2] /= 10
    result = flareclust.run("pooled", sites, k=3, scale="standard", policy={"min_count": 10})
    assert any("column 3" in text and "10 times" in text for text in result.warnings)
