"""With secure sums each site compares its columns with those of the others; the server learns how many are odd, not whose."""

import logging

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.core.scaling import KnownSpread, without
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.evaluation import agreement
from flareclust.evaluation.units import ODDITIES
from flareclust.executors.lloyd import LloydExecutor
from flareclust.platform.simulator import run_simulator
from flareclust.privacy.policy import Policy
from flareclust.protocol import registry
from flareclust.protocol.task import ODD_KINDS, StepName, Task
from tests.computed import computed
from tests.unit.evaluation.test_agreement import COLUMNS, hospitals

NAMES = ("age", "crp", "size")
RNG = np.random.default_rng(2)
ROWS = {site: RNG.normal([50, 70, 37], [15, 12, 4], (200, 3)) for site in ("a", "b", "c", "d")}
OPTIONS = JobOptions(k=2, secure_sums=True)
SMALLER = ODDITIES.index("is about 10 times smaller than at other sites; is it in another unit?")


def tables(factor=0.1, site="c", column=2):
    rows = {name: X.copy() for name, X in ROWS.items()}
    rows[site][:, column] *= factor
    return {name: Table(X, NAMES) for name, X in rows.items()}


def run(sites, algorithm="lloyd", policy=None, **settings):
    params = {"compare": "spread", **settings}
    return run_inprocess(registry.get(algorithm), params, sites, OPTIONS, policy=policy)


def logged(caplog, *, at_site=False):
    found = [record for record in caplog.records if record.name == "flareclust.preparation.units"]
    return [record.getMessage() for record in found if (record.funcName == "odd_columns") == at_site]


# ---- a site compares itself with the others ----


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("lloyd", {}),
        ("portfolio", {}),
        ("kfed", {"scale": "standard"}),
        ("lloyd", {"scale": "robust", "compare": "none"}),
        ("pooled", {"missing": "mean", "compare": "none"}),
    ],
    ids=str,
)
def test_the_server_learns_how_many_sites_are_odd_and_their_log_whose(algorithm, settings, caplog):
    outcome = run(tables(), algorithm, **settings)
    expected = np.zeros((3, len(ODDITIES)), dtype=np.int64)
    expected[2, SMALLER] = 1
    np.testing.assert_array_equal(outcome.arrays["odd_sites"], expected)
    assert not {"site_means", "scaled_sites"} & set(outcome.arrays)
    said = "column 'size' is about 10 times smaller than at other sites; is it in another unit?"
    assert logged(caplog, at_site=True) == [f"c: {said}"]
    # The server says so before the first round, too.
    (text,) = logged(caplog)
    assert text.startswith("1 site has a column 3 of 3, whose name the sites know, that is about 10 times smaller")


def test_the_result_counts_sites_and_names_none(tmp_path):
    (tmp_path / "data").mkdir()
    for site, table in tables().items():
        np.savetxt(tmp_path / "data" / f"{site}.csv", table.X, delimiter=",", header=",".join(NAMES), comments="")
    result = flareclust.run(
        "lloyd", str(tmp_path / "data"), partition="none", k=2, secure_sums=True, engine="inprocess"
    )
    found = [text for text in result.warnings if "smaller" in text]
    said = "a column 'size' that is about 10 times smaller than at other sites; is it in another unit?"
    assert found == [f"1 site has {said} The log of that site names it"]


def test_comparing_changes_nothing_else_in_a_job():
    plain, found = run(tables(), compare="none"), run(tables())
    np.testing.assert_array_equal(found.centroids, plain.centroids)
    assert found.metrics == plain.metrics
    steps = [record["step"] for record in found.rounds]
    assert steps[:4] == ["keys", "names", "scales", "odd_columns"]
    assert found.rounds[3]["round"] == 0
    assert steps[4:] == [record["step"] for record in plain.rounds][1:]
    assert not run(tables(factor=1)).arrays["odd_sites"].any()


def test_groups_of_rows_are_compared_under_a_policy(caplog):
    outcome = run(tables(), policy=Policy.of({"min_count": 10, "round_counts": 7}))
    assert outcome.arrays["odd_sites"][2, SMALLER] == outcome.arrays["odd_sites"].sum() == 1
    assert logged(caplog, at_site=True)[0].startswith("c: column 'size'")


def test_categories_and_columns_with_few_known_cells_are_not_compared():
    sites = tables(factor=1)
    for site, table in sites.items():
        table.X[:, 1] = RNG.random(200) < (0.5 if site != "b" else 0.003)
    sites["c"].X[:, 2] = np.where(np.arange(200) < 3, 0.1 * sites["c"].X[:, 2], np.nan)
    settings = {"missing": "mean", "min_count": 5}
    assert not run(sites, categories=[[1]], **settings).arrays["odd_sites"].any()
    assert run(sites, **{**settings, "min_count": 2}).arrays["odd_sites"].any()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [0.1, 10, 25.4, 1e-3, 1e6])
def test_only_the_site_itself_finds_its_column_odd(seed, factor, caplog):
    sites = hospitals(seed)
    sites["south"][:, 2] *= factor
    outcome = run({site: Table(X, COLUMNS) for site, X in sites.items()}, missing="mean")
    (text,) = logged(caplog, at_site=True)
    assert text.startswith("south: column 'tumour' is about")
    assert outcome.arrays["odd_sites"].sum() == 1


@pytest.mark.parametrize("m", [3, 7, 40])
def test_sites_that_agree_with_most_do_not_say_so_of_themselves(m):
    """Where a column lies about 0, the deviation of others with one in inches can be ten times that of a site."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(0, 10, 200) for _ in range(m)]
    parts[0] = parts[0] * 25.4
    one = [KnownSpread(np.array([200]), np.array([x.mean()]), np.array([x.std()])) for x in parts]
    every = np.concatenate(parts)
    pooled = KnownSpread(np.array([len(every)]), np.array([every.mean()]), np.array([every.std()]))
    found = [agreement.own_oddities(pooled, own, 2)[0] for own in one]
    assert found[0].said.startswith("is about 25.4 (inches) times larger")
    assert set(found[1:]) == {None}


def test_the_others_are_all_without_a_site():
    rng = np.random.default_rng(1)
    for factor in (1e-6, 0.1, 1, 1e6):
        parts = [rng.normal(30, 5, (n, 2)) for n in (80, 50, 300)]
        parts[0] = parts[0] * factor
        whole, rest = np.concatenate(parts), np.concatenate(parts[1:])
        pooled, own = (KnownSpread(np.full(2, len(X)), X.mean(axis=0), X.std(axis=0)) for X in (whole, parts[0]))
        found = without(pooled, own)
        np.testing.assert_array_equal(found.counts, len(rest))
        np.testing.assert_allclose(found.mean, rest.mean(axis=0), rtol=1e-8)
        np.testing.assert_allclose(found.deviation, rest.std(axis=0), rtol=1e-2)


def test_there_is_nothing_without_the_only_site():
    own = KnownSpread(np.array([5]), np.array([3.0]), np.array([2.0]))
    counts, mean, deviation = without(own, own)
    assert (counts.tolist(), mean.tolist(), deviation.tolist()) == ([0], [0.0], [0.0])
    assert agreement.own_oddities(own, own, 2) == [None]


def test_several_sites_are_counted():
    numbers = np.zeros((1, len(ODDITIES)), dtype=np.int64)
    numbers[0, -3] = 2
    assert agreement.counted_oddities(numbers, ["temp"]) == [
        "2 sites have a column 'temp' that looks like Fahrenheit at some sites and Celsius at others. Their logs name them"
    ]


# ---- what a server can ask ----

TASK = {"pooled_counts": np.full(3, 800), "pooled_mean": np.full(3, 40.0), "pooled_deviation": np.full(3, 9.0)}


def asked(executor, task):
    return computed(executor, task, tables()["a"], np.random.default_rng(0))


def test_a_site_answers_once_and_masked_only():
    executor = LloydExecutor(2)
    with pytest.raises(Refusal, match="only masked, and was asked for those of the step odd_columns"):
        executor.answer(Task(StepName.ODD_COLUMNS, 0, TASK, "a"), tables()["a"], never_abort)
    with pytest.raises(BadMessage, match="a job asks for it once"):
        asked(executor, Task(StepName.ODD_COLUMNS, 1, TASK, "a"))
    short = {name: value[:2] for name, value in TASK.items()}
    with pytest.raises(BadMessage, match="pooled_counts"):
        asked(executor, Task(StepName.ODD_COLUMNS, 0, short, "a"))


@pytest.mark.parametrize("count", [0, 1, 199, 2**40])
def test_totals_that_cannot_be_show_nothing_of_a_site(count):
    executor = LloydExecutor(2)
    totals = {**TASK, "pooled_counts": np.full(3, count), "pooled_deviation": np.zeros(3)}
    reply = asked(executor, Task(StepName.ODD_COLUMNS, 0, totals, "a"))
    assert not reply["odd"].any()


@pytest.mark.slow
def test_the_simulator_gives_the_same_bits(tmp_path):
    sites = {name: tables()[name] for name in "abc"}
    params = {"compare": "spread"}
    there = run_simulator(registry.get("lloyd"), params, sites, OPTIONS, tmp_path)
    here = run_inprocess(registry.get("lloyd"), params, sites, OPTIONS)
    assert set(there.arrays) == set(here.arrays)
    for name, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[name], value, err_msg=name)
    assert here.arrays["odd_sites"].sum() == 1


# ---- where the server knows location and spread of each site ----


def masked_sites():
    rng = np.random.default_rng(3)
    rows = {site: rng.normal([50, 70, 37, 5], [15, 12, 4, 1], (200, 4)) for site in "abcd"}
    rows["b"][:, 2] *= 0.1
    names = ("age", "crp", "size", "dose")
    kept = {"a": [0, 1, 2], "b": [2, 0, 1], "c": [0, 2, 3], "d": [3, 2, 1]}
    return {site: Table(rows[site][:, own].copy(), tuple(names[j] for j in own)) for site, own in kept.items()}


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-imputed"])
def test_columns_of_the_sites_that_have_them_are_compared(name, caplog):
    settings = {} if name == "fkm-imputed" else {"scale": "standard"}
    sites = {
        site: {column: table.X[:, j] for j, column in enumerate(table.columns)}
        for site, table in masked_sites().items()
    }
    outcome = run_inprocess(registry.get(name), settings, masked_sites(), JobOptions(k=2))
    said = "b: column 'size' is about 10 times smaller than at other sites; is it in another unit?"
    assert logged(caplog) == [said]
    assert outcome.arrays["site_means"].shape == (4, 4)
    assert np.isnan(outcome.arrays["site_means"]).sum() == 4
    pd = pytest.importorskip("pandas")
    frames = {site: pd.DataFrame(columns) for site, columns in sites.items()}
    result = flareclust.run(name, frames, k=2, **settings)
    assert [text for text in result.warnings if "unit" in text] == [said]


def test_without_scale_nothing_is_known_of_them():
    outcome = run_inprocess(registry.get("masked"), {}, masked_sites(), JobOptions(k=2))
    assert "site_means" not in outcome.arrays


def test_of_two_sites_that_have_a_column_one_is_named():
    means = np.array([[1.0, np.nan], [1.0, 3.0], [1.0, 300.0]])
    found = agreement.unit_warnings(["a", "b", "c"], np.full((3, 2), 200), means, means / 10, ["x", "y"])
    assert found == ["b: column 'y' is about 100 times smaller than at other sites; is it in another unit?"]


# ---- a column that decides all distances ----


@pytest.mark.parametrize("secure", [False, True])
def test_a_column_that_outweighs_is_logged_before_round_0(secure, caplog):
    sites = {site: Table(X * [1, 1, 1e4], NAMES) for site, X in ROWS.items()}
    records = []
    options = JobOptions(k=2, secure_sums=secure)

    def on_round(record):
        records.append((record["step"], len(logged(caplog))))

    with caplog.at_level(logging.WARNING):
        run_inprocess(registry.get("lloyd"), {"compare": "spread"}, sites, options, on_round=on_round)
    assert dict(records)["odd_columns" if secure else "scales"] == 1
    (text,) = logged(caplog)
    assert text.startswith("column 3 of 3, whose name the sites know, varies more than 30 times as much as most others")
    caplog.clear()
    run_inprocess(registry.get("lloyd"), {"compare": "spread", "scale": "standard"}, sites, options)
    assert not logged(caplog)


def test_totals_have_room_for_all_that_may_be_odd():
    assert len(ODDITIES) == ODD_KINDS
