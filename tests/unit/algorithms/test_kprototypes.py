"""k-prototypes is Huang's algorithm on the pooled rows, for tables of numbers and categories."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flareclust
from flareclust import JobFailed, UserError
from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.late_sites import place
from flareclust.evaluation import metrics
from flareclust.executors.kprototypes import KPrototypesExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.protocol import registry
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import StepName, Task
from flareclust.testing.tools import step_reply
from tests.examples import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes

#: Two numbers, then a category of three values and one of four.
GROUPS, SIZES = [[2, 3, 4], [5, 6, 7, 8]], (3, 4)


def one_hot(values, sizes=SIZES):
    return np.concatenate([np.eye(n)[column] for column, n in zip(np.asarray(values).T, sizes, strict=True)], axis=1)


def table(n, seed=0, apart=6.0, agrees=0.8):
    """Return numbers (n, 2), values (n, 2) and classes (n,) of three clusters."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    numbers = rng.normal(size=(n, 2)) + apart * np.eye(3, 2)[classes]
    usual = np.column_stack([classes, (classes + 1) % 4])
    drawn = np.column_stack([rng.integers(3, size=n), rng.integers(4, size=n)])
    return numbers, np.where(rng.random((n, 2)) < agrees, usual, drawn), classes


def split(X, m=3, seed=0):
    parts = np.array_split(np.random.default_rng(seed).permutation(len(X)), m)
    return {f"site-{i}": X[rows] for i, rows in enumerate(parts)}


NUMBERS, VALUES, CLASSES = table(240)
X = np.concatenate([NUMBERS, one_hot(VALUES)], axis=1)
START = X[:3]


def run(sites, k=3, **params):
    return flareclust.run("kprototypes", sites, k=k, categories=GROUPS, **params)


def literal(numbers, values, centers, modes, gamma, rounds):
    """Return centers and modes of Huang's algorithm after so many rounds, row by row, and the labels (n,) of each round."""
    history = []
    for _ in range(rounds):
        labels = [
            min(
                range(len(centers)),
                key=lambda c: float(((x - centers[c]) ** 2).sum()) + gamma * sum(a != b for a, b in zip(v, modes[c], strict=True)),
            )
            for x, v in zip(numbers, values, strict=True)
        ]  # fmt: skip
        history.append(np.array(labels))
        for c in set(labels):
            own = [i for i, label in enumerate(labels) if label == c]
            centers[c] = numbers[own].mean(axis=0)
            modes[c] = [max(range(n), key=lambda v: (sum(values[own, j] == v), -v)) for j, n in enumerate(SIZES)]
    return centers, modes, history


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.floats(0.1, 10))
def test_every_update_is_huangs_on_the_pooled_rows(seed, k, m, gamma):
    numbers, values, _ = table(120, seed, apart=2.0, agrees=0.5)
    rows = np.concatenate([numbers, one_hot(values)], axis=1)
    start = rows[np.random.default_rng(seed).choice(120, size=k, replace=False)]
    modes = [[int(np.argmax(row[group])) for group in GROUPS] for row in start]
    expected, expected_modes, history = literal(numbers, values, [row[:2].copy() for row in start], modes, gamma, 4)
    sites = np.array_split(np.arange(120), m)
    assume(
        all(1 not in np.bincount(labels[own]) for labels in history for own in sites)
    )  # no site withholds a single row
    tables = {f"site-{i}": rows[own] for i, own in enumerate(sites)}
    found = run(tables, k, start=start.tolist(), gamma=gamma, rounds=4, tol=0.0)
    np.testing.assert_allclose(found.centroids[:, :2], expected, atol=1e-9)
    np.testing.assert_array_equal(found.centroids[:, 2:], one_hot(expected_modes))


@pytest.mark.parametrize("seed", range(3))
def test_it_ends_where_kmodes_kprototypes_ends(seed):
    numbers, values, _ = table(150, seed)
    rows = np.concatenate([numbers, one_hot(values)], axis=1)
    mixed, start = np.concatenate([numbers, values], axis=1), [0, 1, 2]
    reference = KPrototypes(3, init=[numbers[start], values[start]], n_init=1, gamma=1.5, max_iter=100)
    labels = reference.fit_predict(mixed, categorical=[2, 3])
    found = run({"a": rows[:40], "b": rows[40:90], "c": rows[90:]}, start=rows[start].tolist(), gamma=1.5, tol=0.0)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.centroids[:, :2], reference.cluster_centroids_[:, :2].astype(float), rtol=1e-9)
    np.testing.assert_array_equal(found.centroids[:, 2:], one_hot(reference.cluster_centroids_[:, 2:].astype(int)))
    assert found.metrics["inertia"] == pytest.approx(reference.cost_, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_without_numbers_it_ends_where_kmodes_ends(seed):
    rng = np.random.default_rng(seed)
    classes = np.arange(300) % 3
    values = np.where(rng.random((300, 5)) < 0.85, classes[:, None], rng.integers(4, size=(300, 5)))
    rows, groups = one_hot(values, (4,) * 5), [list(range(4 * j, 4 * j + 4)) for j in range(5)]
    reference = KModes(3, init=np.array([[0] * 5, [1] * 5, [2] * 5]), n_init=1).fit(values)
    start = one_hot([[0] * 5, [1] * 5, [2] * 5], (4,) * 5)
    sites = {"a": rows[:100], "b": rows[100:220], "c": rows[220:]}
    found = flareclust.run("kprototypes", sites, k=3, categories=groups, start=start.tolist(), tol=0.0)
    np.testing.assert_array_equal(found.labels, reference.labels_)
    np.testing.assert_array_equal(found.centroids, one_hot(reference.cluster_centroids_.astype(int), (4,) * 5))
    assert found.metrics["inertia"] == pytest.approx(reference.cost_)  # the number of values that differ


def test_a_case_by_hand():
    """Two sites, two clusters: the numbers' means, the modes of all rows and not of one site, gamma as given."""
    north = [[0.0, 1, 0], [2.0, 1, 0], [4.0, 0, 1], [20.0, 0, 1], [22.0, 0, 1]]
    south = [[1.0, 0, 1], [3.0, 0, 1], [6.5, 0, 1], [21.0, 1, 0], [23.0, 0, 1]]
    sites = {"north": np.array(north), "south": np.array(south)}
    start = [[0.0, 1.0, 0.0], [20.0, 0.0, 1.0]]
    found = flareclust.run("kprototypes", sites, k=2, categories=[[1, 2]], gamma=0.5, start=start)
    # 0 to 6.5: 2 of 6 rows have the first value, although 2 of 3 in the north do; 20 to 23: 1 of 4 has it.
    np.testing.assert_allclose(found.centroids, [[2.75, 0, 1], [21.5, 0, 1]], rtol=1e-12)
    np.testing.assert_array_equal(found.labels, [0, 0, 0, 1, 1, 0, 0, 0, 1, 1])
    squares = sum((x - 2.75) ** 2 for x in (0, 1, 2, 3, 4, 6.5)) + sum((x - 21.5) ** 2 for x in (20, 21, 22, 23))
    assert found.metrics["inertia"] == pytest.approx(squares + 3 * 0.5)


def test_gamma_follows_from_the_numbers_of_all_sites():
    differ = [(VALUES[:, None, j] != VALUES[None, :, j]).mean() for j in range(2)]  # of all pairs of rows
    for secure in (False, True):
        found = float(run(split(X), secure_sums=secure).arrays["gamma"])
        assert found == pytest.approx(NUMBERS.var(axis=0).mean() / np.mean(differ), rel=0.03)
    assert float(run(split(X), scale="standard").arrays["gamma"]) == pytest.approx(1 / np.mean(differ), rel=0.01)
    assert float(run(split(X), gamma=3.0).arrays["gamma"]) == 3.0


def test_the_unit_of_all_numbers_changes_nothing_without_a_scale():
    moved = X.copy()
    moved[:, :2] *= 1024.0
    np.testing.assert_array_equal(run(split(moved)).labels, run(split(X)).labels)


@pytest.mark.parametrize(("times", "warns"), [(1.0, False), (4.0, True)])
def test_numbers_of_unlike_spread_are_named_unless_they_are_scaled(times, warns, caplog):
    wide = X.copy()
    wide[:, 1] *= times
    sites = {site: pd.DataFrame(rows, columns=list("abcdefghi")) for site, rows in split(wide).items()}
    sentence = (
        "column 'b' varies more than 3 times as much as most others and decides the distances; set scale=standard"
    )
    assert any(sentence in warning for warning in run(sites).warnings) == warns
    assert not any("decides the distances" in warning for warning in run(sites, scale="standard").warnings)
    run(sites, secure_sums=True)  # the spread at single sites is not known: the server's log has it
    said = "column 2 of 9, whose name the sites know, varies more than 3 times"
    assert (said in caplog.text) == warns
    assert "column 'column" not in caplog.text


def test_an_offset_and_a_unit_change_nothing():
    here = run(split(X), tol=0.0)
    moved = X.copy()
    moved[:, :2] = 1024.0 * moved[:, :2] + 2048.0
    there = run(split(moved), tol=0.0, gamma=float(here.arrays["gamma"]) * 1024.0**2)
    np.testing.assert_array_equal(there.labels, here.labels)
    np.testing.assert_allclose(there.centroids[:, :2], 1024.0 * here.centroids[:, :2] + 2048.0, rtol=1e-9)
    scaled = [run(split(rows), scale="standard").labels for rows in (X, moved)]
    np.testing.assert_array_equal(*scaled)


def test_the_order_of_values_and_columns_changes_nothing():
    order = np.array([7, 1, 4, 0, 8, 2, 6, 3, 5])  # new column j is column order[j]
    place_of = np.argsort(order)
    groups = [[int(place_of[column]) for column in group] for group in reversed(GROUPS)]
    here = run(split(X), start=START.tolist(), gamma=1.0)
    there = flareclust.run(
        "kprototypes", split(X[:, order]), k=3, categories=groups, start=START[:, order].tolist(), gamma=1.0
    )
    np.testing.assert_array_equal(there.labels, here.labels)
    np.testing.assert_allclose(there.centroids, here.centroids[:, order], rtol=1e-12)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
def test_clusters_are_found_from_the_sites_seeds(secure):
    found = run(split(X), secure_sums=secure)
    assert set(np.unique(found.centroids[:, 2:])) == {0.0, 1.0}
    truth = np.concatenate([CLASSES[rows] for rows in np.array_split(np.random.default_rng(0).permutation(240), 3)])
    assert metrics.ari(found.labels, truth) > 0.9


def test_under_a_policy_and_with_rounded_counts():
    found = run(split(X), policy={"min_count": 10, "round_counts": 5})
    assert set(np.unique(found.centroids[:, 2:])) == {0.0, 1.0}
    assert not found.left_out
    assert metrics.ari(found.labels, run(split(X)).labels) > 0.9


def test_clusters_of_identical_rows_are_released_in_tables_of_categories():
    values = np.repeat([[0, 1], [1, 3], [2, 0]], [40, 30, 20], axis=0)
    rows, groups = one_hot(values), [[0, 1, 2], [3, 4, 5, 6]]
    found = flareclust.run("kprototypes", split(rows), k=3, categories=groups)
    assert sorted(map(tuple, found.centroids)) == sorted(map(tuple, one_hot([[0, 1], [1, 3], [2, 0]])))
    assert found.metrics["inertia"] == 0.0
    with pytest.raises(flareclust.JobFailed, match="nothing it may send"):
        flareclust.run("lloyd", split(rows), k=3)  # whose columns could be any numbers
    numbers = np.column_stack([values[:, 0] + 50.0, rows])
    with pytest.raises(flareclust.JobFailed, match="nothing it may send"):
        flareclust.run("kprototypes", split(numbers), k=3, categories=[[1, 2, 3], [4, 5, 6, 7]])


@pytest.mark.parametrize("deviation", [1.0, 5.0])
def test_numbers_called_categories_release_nothing(deviation):
    """A server that names all columns as categories gets no row, whatever it says that 1 is."""
    rows = np.repeat([[5.0, 7.0], [9.0, 2.0]], 10, axis=0)
    executor = KPrototypesExecutor(2, categories=[[0], [1]])
    arrays = {"centroids": rows[[0, 10]] / deviation, "mean": np.zeros(2), "deviation": np.full(2, deviation)}
    sent = executor.answer(Task(UPDATE, 1, arrays, "a"), rows, never_abort).arrays
    assert not len(sent["centroids"])


def test_a_missing_category_decides_nothing():
    rows = X.copy()
    rows[::7, 5:] = 0.0
    found = run(split(rows), gamma=1.0, start=START.tolist(), tol=0.0)
    known = ((rows[:, None, :2] - found.centroids[:, :2]) ** 2).sum(axis=2)
    for group in GROUPS:
        present = rows[:, group].any(axis=1)
        known += present[:, None] * (1.0 - rows[:, group] @ found.centroids[:, group].T)
    np.testing.assert_array_equal(found.predict(rows), known.argmin(axis=1))


def test_rows_of_later_sites_and_users_get_the_nearest_prototype(tmp_path):
    found = run(split(X), out=tmp_path / "out")
    rows = np.concatenate(list(split(X).values()))
    np.testing.assert_array_equal(found.predict(rows), found.labels)
    np.testing.assert_array_equal(flareclust.load_result(tmp_path / "out").predict(rows), found.labels)
    np.testing.assert_array_equal(place(tmp_path / "out", rows, "late"), found.labels)
    assert (tmp_path / "out" / "picture.png").exists()


def test_columns_that_are_no_category_are_refused():
    executor = KPrototypesExecutor(3, categories=[[0, 1]])
    with pytest.raises(Refusal, match="something else than one 1"):
        executor.answer(Task(StepName.SCALES, 0, {}, "a"), X, never_abort)
    with pytest.raises(Refusal, match="9 columns where the categories of the job have more"):
        KPrototypesExecutor(3, categories=[[9]]).answer(Task(StepName.SCALES, 0, {}, "a"), X, never_abort)
    with pytest.raises(UserError, match="got a column twice"):
        flareclust.run("kprototypes", split(X), k=3, categories=[[1], [1]])
    with pytest.raises(flareclust.JobFailed, match="start has centroids of 2 columns where the rows have 9"):
        run(split(X), start=[[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])


def test_without_categories_it_is_distributed_lloyd():
    rows = split(NUMBERS)
    found, lloyd = (flareclust.run(name, rows, k=3) for name in ("kprototypes", "lloyd"))
    np.testing.assert_array_equal(found.centroids, lloyd.centroids)


def test_columns_that_are_no_category_are_refused_with_missing_cells_too(rng):
    sites = {site: rng.normal(size=(40, 3)) for site in "ab"}
    with pytest.raises(JobFailed, match="something else than one 1"):
        flareclust.run("kprototypes", sites, k=2, categories=[[0, 1]], missing="mean")


def test_a_repeated_row_of_numbers_stays_whatever_a_job_calls_it():
    """A server that declares all columns categories, and chooses what 0 and 1 are, gets no row confirmed."""
    executor = registry.get("kprototypes").build(1, 0, {"categories": [[0, 1]]})[0]
    rows = np.repeat([[37.5, 12.0]], 5, axis=0)
    context = SiteContext(2)
    for arrays in (
        {"mean": np.zeros(2), "deviation": np.ones(2)},
        {"mean": np.zeros(2), "deviation": np.array([1 / 37.5, 1 / 12.0])},
    ):
        task = Task("update", 1, {"centroids": np.zeros((1, 2)), **arrays}, "site-1")
        assert not len(step_reply(executor, task, Table(rows), context)["counts"])
    shifted = Task("update", 1, {"centroids": np.zeros((1, 2)), "mean": rows[0] - 1, "deviation": np.ones(2)}, "site-1")
    with pytest.raises(BadMessage, match="expected 0 for the columns of categories"):
        step_reply(executor, shifted, Table(rows), context)


@pytest.mark.parametrize(
    "sent", [{"deviation": np.ones(2)}, {"mean": np.zeros(1), "deviation": np.ones(2)}, {"mean": np.array(["a", "b"])}]
)
def test_a_scale_is_checked_before_it_is_used(sent):
    executor = KPrototypesExecutor(2, categories=[[0, 1]])
    task = Task(UPDATE, 1, {"centroids": np.eye(2), **sent}, "a")
    with pytest.raises(BadMessage):
        executor.answer(task, np.tile(np.eye(2), (10, 1)), never_abort)
