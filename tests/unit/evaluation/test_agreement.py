"""What sites mean by their columns: a column in another unit is named, one whose patients are others is not."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust.core.scaling import KnownSpread, rounded_spread
from flareclust.data.cells import DAYS
from flareclust.data.tables import Table
from flareclust.evaluation import agreement
from tests.command_line import call
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
    return agreement.unit_warnings(list(sites), cells, means, deviations, COLUMNS)


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


def spread_of(X):
    return KnownSpread(np.full(X.shape[1], len(X)), X.mean(axis=0), X.std(axis=0))


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_site_finds_its_own_column_odd_unless_it_is_another_site_that_has_the_other_unit(factor):
    own, *others = np.random.default_rng(0).normal(60, 10, (4, 300, 1))
    alike = spread_of(np.concatenate([own, *others]))
    assert agreement.own_oddities(alike, spread_of(own), 10) == [None]
    (odd,) = agreement.own_oddities(spread_of(np.concatenate([factor * own, *others])), spread_of(factor * own), 10)
    assert odd is not None
    one_larger = np.concatenate([own, others[0], 1e3 * others[1], others[2]])
    assert agreement.own_oddities(spread_of(one_larger), spread_of(own), 10) == [None]


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


# ---- which ratio, and what chance explains ----


def compared(sites):
    """What is said of sites that send rounded means and deviations."""
    spreads = [rounded_spread(X) for X in sites.values()]
    cells = np.array([np.full(X.shape[1], len(X)) for X in sites.values()])
    means, deviations = (np.array([getattr(one, name) for one in spreads]) for name in ("mean", "deviation"))
    return agreement.unit_warnings(list(sites), cells, means, deviations, [f"x{j}" for j in range(means.shape[1])])


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (2.2046, "2.2 (pounds)"),
        *((factor, factor) for factor in (3, 5, 7, 60)),
        (18.02, "18 (glucose in mg/dl)"),
        (30, 30),
        (38.67, "38.7 (cholesterol in mg/dl)"),
        (88.4, "88.4 (creatinine in µmol/l)"),
    ],
)
def test_any_ratio_is_named_and_a_known_one_only_where_it_fits(factor, words):
    rng = np.random.default_rng(1)
    sites = {
        site: np.c_[np.exp(rng.normal(1.8, 0.25, n)), rng.normal(60, 12, n)]
        for site, n in (("a", 900), ("b", 800), ("c", 700))
    }
    sites["b"][:, 0] *= factor
    [text] = compared(sites)
    ratio, rest = text.removeprefix("b: column 'x0' is about ").split(" times ")
    assert rest == "larger than at other sites; is it in another unit?"
    assert ratio == words or float(ratio) == pytest.approx(float(words), rel=0.05)


@pytest.mark.parametrize("degrees", [36.9, -12.0])
def test_pounds_and_degrees_are_told_apart(degrees):
    rng = np.random.default_rng(0)
    sites = {site: rng.normal([70, degrees, 150], [12, 0.6, 100], (400, 3)) for site in "abc"}
    sites["b"][:, 0] /= 0.45359237
    sites["b"][:, 1] = 1.8 * sites["b"][:, 1] + 32
    sites["c"][:, 2] *= 1.9  # of values that vary this much other patients explain it as well
    of_pounds, of_degrees = sorted(compared(sites))
    assert "'x0' is about 2.2 (pounds)" in of_pounds
    assert "'x1' looks like Fahrenheit" in of_degrees


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lighter", "narrower"), [(0.88, 1), (0.88, 0.88), (1, 0.88)])
def test_pounds_are_named_although_patients_are_lighter_or_more_alike(lighter, narrower, seed):
    rng = np.random.default_rng(seed)
    sites = {site: rng.normal(78, 14, (n, 1)) for site, n in (("a", 150), ("b", 250), ("c", 200), ("d", 180))}
    sites["b"] = (78 * lighter + 14 * narrower * rng.normal(size=(250, 1))) / 0.45359237
    for some in (sites, {site: sites[site] for site in "ab"}):
        [text] = compared(some)
        assert "'x0' is about" in text
        assert text.endswith("than at other sites; is it in another unit?")


@pytest.mark.parametrize("apart", [1, 2])
def test_other_patients_are_in_no_other_unit(apart):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        width = np.linspace(0.05, 0.25, 20)
        sites = {site: np.exp(width * rng.normal(size=(300, 20))) for site in "abc"}
        sites["b"] *= np.exp(width * apart)
        assert compared(sites) == []


@pytest.mark.parametrize("rows", [3, 5, 8, 15])
@pytest.mark.parametrize("kind", ["normal", "centred", "lognormal"])
def test_a_few_rows_are_in_no_other_unit(kind, rows):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sites = {site: rng.normal(size=(n, 20)) for site, n in (("tiny", rows), ("big", 500), ("other", 200))}
        if kind != "centred":
            sites = {site: 50 + 10 * X if kind == "normal" else np.exp(3 + X) for site, X in sites.items()}
        assert compared(sites) == []
        assert compared({"tiny": sites["tiny"], "big": sites["big"]}) == []


def test_a_few_cells_far_from_all_others_may_be_a_code():
    rng = np.random.default_rng(0)
    sites = {site: rng.normal([5, 60], [1, 12], (n, 2)) for site, n in (("a", 400), ("b", 150), ("c", 90))}
    sites["b"][:2, 0] = 9999
    assert "b: column 'x0' has a few cells far from all others (standard deviation 1" in compared(sites)[0]
    [text] = compared({site: sites[site] for site in "ab"})
    assert text.startswith("b: column 'x0' has a few cells")
    assert text.endswith("are they a code for missing ones?")


@pytest.mark.parametrize("others", ["b", "bd", "bcd"])
def test_cells_far_from_all_others_are_named_at_each_site_that_has_them(others):
    rng = np.random.default_rng(0)
    sites = {site: rng.normal([5, 60], [1, 12], (n, 2)) for site, n in zip("abcd", (400, 150, 90, 120), strict=True)}
    for site in others:
        sites[site][0, 0] = 9999
    found = compared(sites)
    assert [text[: text.index(" (standard")] for text in found] == [
        f"{site}: column 'x0' has a few cells far from all others" for site in others
    ]


def test_columns_that_are_odd_in_the_same_way_are_one_sentence():
    rng = np.random.default_rng(0)
    sites = {site: rng.normal(50, 10, (200, 54)) for site in "abc"}
    sites["b"][:, 3:] *= 10
    [text] = compared(sites)
    assert text.endswith("is it in another unit? Likewise 'x4', 'x5' and 48 more columns")
    assert len(compared({site: X[:, :6] for site, X in sites.items()})) == 3


def test_dates_are_said_as_dates():
    cells, deviations = np.full((3, 1), 100), np.full((3, 1), 9.0)
    means = np.array([[19_700.0], [19_700.0], [12_000.0]])
    [text] = agreement.unit_warnings(["a", "b", "c"], cells, means, deviations, ["seen"], {"seen": DAYS})
    assert "(mean 2002-11-09, elsewhere 2023-12-09)" in text


def test_parts_of_one_table_have_no_units_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(10, 1, (60, 2)), rng.normal(1000, 1, (60, 2))])
    np.savez(tmp_path / "rows.npz", X=X, y=np.repeat([0, 1], 60), owners=np.repeat([0, 1], 60))
    run = {"k": 2, "scale": "standard", "seed": 0}
    parted = flareclust.run("pooled", str(tmp_path / "rows.npz"), n_sites=2, partition="clusters:1", **run)
    assert not any("column" in text for text in parted.warnings)
    owned = flareclust.run("pooled", str(tmp_path / "rows.npz"), partition="owners", **run)
    assert any("has values apart" in text for text in owned.warnings)


# ---- columns that are mostly 0 ----


def below_detection(rng, few=0.006, factor=1):
    """Three sites' values, 0 where they are below detection; at one of them `few` of the patients have others."""
    sites = {}
    for site, share in (("a", 0.5), ("b", few), ("c", 0.35)):
        X = np.exp(2 + 0.8 * rng.normal(size=(400, 20))) * (rng.random((400, 20)) < share)
        sites[site] = X * (factor if site == "b" else 1)
    return sites


def test_values_below_detection_are_in_no_other_unit():
    for seed in range(10):
        sites = below_detection(np.random.default_rng(seed))
        assert compared(sites) == []
        few = np.where(np.arange(60) < 2, 3.0, 0.0)[:, None]
        assert compared({"few": few, "many": sites["a"][:, :1], "more": sites["c"][:, :1]}) == []
        tables = {site: Table(X) for site, X in sites.items()}
        assert agreement.unlike_tables(tables, {}) == []


def test_other_units_are_found_in_the_cells_that_are_not_0():
    tables = {site: Table(X[:, :1]) for site, X in below_detection(np.random.default_rng(0), 0.3, 10).items()}
    [text] = agreement.unlike_tables(tables, {})
    assert text.startswith("b: column 'column 1' is about 10 times larger than at other sites")
    rng = np.random.default_rng(0)
    sites = {site: np.exp(2 + 0.4 * rng.normal(size=(400, 1))) * (rng.random((400, 1)) < 0.15) for site in "abc"}
    sites["b"] *= 10
    assert compared(sites) == ["b: column 'x0' is about 10 times larger than at other sites; is it in another unit?"]


# ---- codes for missing cells, over all sites' rows ----


def coded(rng, codes, others=(50, 12)):
    """Three sites' tables of two columns; in the first, single cells hold a code at one site or several."""
    tables = {site: Table(rng.normal(others, [10, 3], (80, 2)).round(1), ("crp", "age")) for site in "abc"}
    for site, values in codes.items():
        tables[site].X[: len(values), 0] = values
    return tables


@pytest.mark.parametrize("code", [9999, -999, 999.9, 777, -1])
def test_a_code_is_named_at_every_site_that_has_it(code):
    for sites in ({"b": [code]}, {"a": [code], "b": [code, code]}, {site: [code] for site in "abc"}):
        rng = np.random.default_rng(0)
        [text] = agreement.coded_cells(coded(rng, sites))
        number = sum(map(len, sites.values()))
        assert text.startswith(f"column 'crp' has {number} cell")
        assert f"({', '.join(f'{site} {len(values)}' for site, values in sites.items())})" in text


def test_a_code_is_looked_for_before_the_logarithm():
    X = np.random.default_rng(0).lognormal(2, 1, (200, 1))
    X[:3] = 999
    [text] = agreement.coded_cells({"a": Table(np.log1p(X), ("log1p(crp)",))})
    assert text.startswith("column 'crp' has 3 cells far from all others")


def test_a_code_in_a_column_of_logarithms_is_not_called_a_shift_of_its_site_as_well(tmp_path):
    rng = np.random.default_rng(0)

    def table(coded):
        crp, groups = rng.lognormal(2, 0.5, 100), 40 * (np.arange(100) % 2)
        crp[:coded] = 9999
        return pd.DataFrame({"crp": crp, "age": rng.normal(groups, 1), "hb": rng.normal(groups, 1)})

    schema = tmp_path / "schema.yaml"
    schema.write_text("columns: {crp: {type: number, transform: log}, age: number, hb: number}")
    warnings = flareclust.run("lloyd", {"a": table(0), "b": table(0), "c": table(40)}, k=2, schema=schema).warnings
    assert [text for text in warnings if "crp" in text] == [text for text in warnings if "(c 40)" in text] != []


@pytest.mark.parametrize("values", [[99], [1234], [-3, -9, -20], [np.nan]])
def test_other_cells_are_no_code(values):
    assert not list(agreement.coded_cells(coded(np.random.default_rng(0), {"b": values})))
    assert not list(agreement.coded_cells({"a": Table(np.array([[1.0, 999], [2, 999]]), ("x", "y"))}))


@pytest.mark.parametrize("name", ["age", "Alter", "age_years", "patient age", "age(born, 2026-01-01)"])
def test_ages_that_nobody_has_are_counted_and_not_shown(name):
    ages = np.array([[30.0], [203], [64], [121], [np.nan]] + [[120.0]] * 5)
    [text] = agreement.coded_cells({"a": Table(ages, (name,))})
    assert text.startswith(f"column {name!r} has 2 cells above 120 years; errors, or a code")
    assert "203" not in text


@pytest.mark.parametrize(("name", "share"), [("stage", 0.1), ("average", 0.1), ("age_months", 0.1), ("age", 0.6)])
def test_other_columns_and_ages_in_another_unit_are_not_held_to_years(name, share):
    values = np.where(np.arange(50) < 50 * share, 150.0, 80)[:, None]
    assert not list(agreement.coded_cells({"a": Table(values, (name,))}))


def test_a_run_and_a_dry_run_name_codes_that_several_sites_have(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for site, table in coded(np.random.default_rng(0), {"a": [9999], "b": [9999], "c": [9999]}).items():
        np.savetxt(tmp_path / "data" / f"{site}.csv", table.X, delimiter=",", header="crp,age", comments="")
    asked = {"partition": "none", "k": 2, "engine": "inprocess"}
    found = flareclust.run("pooled", "data", **asked)
    assert [text for text in found.warnings if "a code for missing ones" in text and "(a 1, b 1, c 1)" in text]
    policed = flareclust.run("pooled", "data", policy={"min_count": 5}, **asked)
    assert not [text for text in policed.warnings if "(a 1, b 1, c 1)" in text]
    assert call("run", "pooled", "--data", "data", "--partition", "none", "--k", 2, "--dry-run") == 0
    assert "hint: column 'crp' has 3 cells far from all others (a 1, b 1, c 1)" in capsys.readouterr().out
