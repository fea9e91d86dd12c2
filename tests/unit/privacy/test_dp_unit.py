"""What ids are protected with: a bounded number of rows of each, noise for all of them, and what policy and ledger say of it."""

from collections.abc import Iterator

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, Refusal, UserError
from flareclust._foundation.typing import FloatArray, IntArray, never_abort
from flareclust.core.dp import axes as dp_axes
from flareclust.core.dp import mixture_sums
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.mixtures import Mixture
from flareclust.data.ids import Ids
from flareclust.data.tables import Table
from flareclust.executors.dp_lloyd import AXES, OUTLINE, SECOND_MOMENTS, UPDATE, DPLloydExecutor
from flareclust.executors.dp_oneshot import DPOneShotExecutor
from flareclust.federation.site import site_stages
from flareclust.platform.simulator import _place
from flareclust.privacy.dp import mechanism
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.dp.server import noise_of
from flareclust.privacy.dp.site import Noise
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.client import MaskingStage
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from flareclust.sites.rows import SiteData
from tests.unit.algorithms.dp_cases import policy

#: Pairs of tables that differ by an id, for each of the sums.
PAIRS = 4000


def ids_of(texts: list[str]) -> Ids:
    ids = Ids()
    ids.extend(texts)
    return ids


def per_id(**said: object) -> dict:
    settings = policy(bounds=(-1.0, 1.0))
    settings["differential_privacy"] |= {"unit": "id"} | said
    return settings


# Which rows are used


def test_the_first_rows_of_each_id_are_used_whatever_lies_between():
    ids = ids_of(["b", "a", "b", "b", "c", "a", "b"])
    assert ids.first(1).tolist() == [True, True, False, False, True, False, False]
    assert ids.first(2).tolist() == [True, True, True, False, True, True, False]
    assert ids.first(9).all()


def test_a_site_makes_the_table_of_used_rows_once_and_leaves_one_alone_that_is_within(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    table = Table(mapped, ids=ids_of(list("aabbbc")), scratch=tmp_path)
    session = SiteSession(Policy.of(per_id()), "a", Ledger.in_memory())
    found = session.bounded(table, 2)
    assert found.X.tolist() == mapped[[0, 1, 2, 3, 5]].tolist()
    assert session.bounded(table, 2) is found
    assert session.bounded(table, 3) is table
    assert session.bounded(table, 1).X.tolist() == mapped[[0, 2, 5]].tolist()


# What an id changes


def tables(rng: np.random.Generator, d: int, most: int) -> tuple[FloatArray, FloatArray]:
    """Return the used rows of two tables that differ by an id: some of its rows alike, some at the bounds and beyond."""
    others = rng.integers(0, 6, rng.integers(1, 16)).astype(str).tolist()
    own = ["new"] * int(rng.integers(1, most + 4))
    texts = rng.permutation([*others, *own]).tolist()
    rows = rng.uniform(-1.2, 1.2, size=(len(texts), d))
    mine = np.array(texts) == "new"
    if rng.random() < 0.7:
        far = rng.choice([-1.0, 1.0], size=d) * rng.choice([1.0, 1e9])
        rows[mine] = far if rng.random() < 0.5 else rows[mine][:1]
    without = [text for text in texts if text != "new"]
    return rows[ids_of(texts).first(most)], rows[~mine][ids_of(without).first(most)]


def summed(kind: str, rows: FloatArray, public: np.random.Generator) -> tuple[IntArray, float]:
    """Return sums over rows about numbers that a server draws, and what a row changes them by at most."""
    d = rows.shape[1]
    box = Box(np.full(d, -1.0), np.full(d, 1.0), float(public.choice([np.inf, 0.8])))
    centroids, radii = public.uniform(-1, 1, size=(3, d)), public.uniform(0.01, 2, 3)
    if kind == "cells":
        return dp_sums.cell_counts(rows, box, box, (3,) * d, never_abort), 1.0
    if kind == "axes":
        axes = np.linalg.qr(public.normal(size=(d, d)))[0].clip(-1, 1)
        return dp_axes.axis_cell_counts(
            rows, box, dp_axes.Grid(box.middle, axes, np.ones(d), (3,) * d), never_abort
        ), 1.0
    if kind == "moments":
        return dp_sums.moment_sums(rows, box, box, never_abort), dp_sums.moment_sensitivity()
    if kind == "second moments":
        return dp_axes.second_moment_sums(rows, box, box, never_abort), dp_axes.second_moment_sensitivity()
    if kind == "iteration":
        mixture = Mixture(np.full(3, 1 / 3), centroids, public.uniform(0.05, 1, size=(3, d)))
        return mixture_sums.expectation_sums(
            rows, box, mixture, "diag", never_abort
        ), mixture_sums.mixture_sensitivity()
    if kind == "update":
        return dp_sums.cluster_sums(rows, box, centroids, radii, never_abort), dp_sums.cluster_sensitivity()
    return dp_sums.quality_sums(rows, box, centroids, float(radii[0]), never_abort), dp_sums.quality_sensitivity()


def changes(kind: str, pairs: int) -> Iterator[float]:
    """Give by how much an id changes sums, in parts of what is stated for it: rows times the sensitivity to a row."""
    for seed in range(pairs):
        rng = np.random.default_rng(seed)
        most = int(rng.integers(1, 6))
        here, there = tables(rng, int(rng.integers(1, 4)), most)
        (a, stated), (b, _) = (summed(kind, rows, np.random.default_rng(seed)) for rows in (here, there))
        yield float(np.sqrt(((a - b).astype(np.float64) ** 2).sum())) / (most * stated)


@pytest.mark.parametrize("kind", ["cells", "axes", "moments", "second moments", "update", "iteration", "assessment"])
def test_an_id_changes_every_sum_by_its_rows_times_the_sensitivity_at_most(kind):
    found = list(changes(kind, PAIRS))
    assert max(found) <= 1
    assert max(found) > 0.9  # so that rows less than there are, or a sensitivity a tenth smaller, would be noticed


STEPS = {
    UPDATE: {"centroids": np.array([[0.5, 0.5], [-0.5, 0.0]]), "radii": np.full(2, 0.6), "share": np.array(0.1)},
    StepName.CLUSTER: {"low": np.full(2, -1.0), "high": np.ones(2), "radius": np.array(2.0), "shape": np.array([3, 3])},
    OUTLINE: {"low": np.full(2, -1.0), "high": np.ones(2), "radius": np.array(2.0)},
    SECOND_MOMENTS: {"low": np.full(2, -1.0), "high": np.ones(2), "radius": np.array(2.0)},
    AXES: {"middle": np.zeros(2), "axes": np.eye(2), "half": np.ones(2), "shape": np.array([3, 3])},
    StepName.ASSESS: {"centroids": np.array([[0.5, 0.5], [-0.5, 0.0]]), "reach": np.array(1.0)},
}


@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("most", [1, 3])
def test_a_site_adds_noise_for_what_an_id_changes(step, most, monkeypatch):
    """Through all stages at a site, of an id with one row, with as many as are used, and with more."""
    noised = []
    monkeypatch.setattr(
        mechanism, "gaussian", lambda values, sensitivity, rho: noised.append((values, sensitivity)) or values
    )
    executor = DPLloydExecutor(2, unit="id", rows_per_id=most)

    def sent(extra: int) -> IntArray:
        rows = np.concatenate([np.full((9, 2), 0.2), np.ones((extra, 2))])
        table = Table(rows, ids=ids_of([*"aabbbcccd", *["new"] * extra]))
        session = SiteSession(Policy.of(per_id()), "job", Ledger.in_memory())
        executor.answer(Task(step, 1, dict(STEPS[step]), "a"), table, never_abort, session)
        return noised[-1][0].astype(float)

    before = sent(0)
    for extra in (1, most, most + 5):
        assert np.linalg.norm(sent(extra) - before) <= noised[-1][1]
    of_unit, of_row = (Noise(params, None).of_unit(2.0) for params in (executor.params, DPLloydExecutor(2).params))
    assert of_unit == most * of_row


def test_the_site_as_its_own_server_adds_noise_for_ids_too(monkeypatch, rng):
    noised = []
    monkeypatch.setattr(mechanism, "gaussian", lambda values, sensitivity, rho: noised.append(sensitivity) or values)
    table = Table(rng.uniform(-1, 1, size=(60, 12)), ids=ids_of([str(i // 3) for i in range(60)]))
    for settings in ({}, {"unit": "id", "rows_per_id": 2}):
        own = policy(bounds=(-1.0, 1.0))
        own["differential_privacy"] |= {"unit": settings.get("unit", "row")}
        session = SiteSession(Policy.of(own), "job", Ledger.in_memory())
        DPOneShotExecutor(3, **settings).answer(Task(StepName.CLUSTER, 0, {}, "a"), table, never_abort, session)
    row, by_id = np.array(noised[: len(noised) // 2]), np.array(noised[len(noised) // 2 :])
    assert len(row) == 4  # moments, and three updates at the site
    np.testing.assert_array_equal(by_id, 2 * row)


def test_the_server_counts_on_the_noise_of_all_rows_of_an_id():
    row, by_id = (get("dp-lloyd").build(3, 0, settings)[1] for settings in ({}, {"unit": "id", "rows_per_id": 4}))
    assert noise_of(by_id.params, 1.0, 0.5, 10) == 4 * noise_of(row.params, 1.0, 0.5, 10)
    assert by_id.rows_needed(2, 10) == pytest.approx(4 * row.rows_needed(2, 10), abs=4)


def test_sites_that_use_other_numbers_of_rows_make_no_total():
    gates = [site_stages(DPLloydExecutor(3, unit="id", rows_per_id=most), None)[0] for most in (1, 2)]
    one, other = (next(stage.alike["noise"] for stage in gate if isinstance(stage, MaskingStage)) for gate in gates)
    assert not np.array_equal(one, other)


# Settings


@pytest.mark.parametrize(
    ("executor", "ids", "said", "words"),
    [
        (DPLloydExecutor(1, unit="id"), None, {}, "rows without ids, which the job protects"),
        (
            DPLloydExecutor(1),
            "aab",
            {},
            r"protects ids with all of their rows \(its policy: unit\).*submit with unit=id",
        ),
        # In the place of the one row of an id another of its rows would be used: two rows change where the budget is for one.
        (DPLloydExecutor(1, unit="id"), "aab", {"unit": "row"}, r"protects single rows \(its policy: unit\)"),
    ],
)
def test_a_site_refuses_what_it_cannot_protect_and_spends_nothing(executor, ids, said, words):
    table = Table(np.zeros((3, 2)), ids=None if ids is None else ids_of(list(ids)))
    ledger = Ledger.in_memory()
    task = Task(OUTLINE, 1, dict(STEPS[OUTLINE]), "a")
    with pytest.raises(Refusal, match=words):
        executor.answer(task, table, never_abort, SiteSession(Policy.of(per_id(**said)), "job", ledger))
    assert not ledger.spent().total


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UserError, match=r"unit must be one of row, id, got 'ids' .did you mean 'id'"):
        Policy.of(per_id(unit="ids"))
    with pytest.raises(UserError, match="rows_per_id=3 is a setting of unit=id"):
        get("dp-lloyd").build(3, 0, {"rows_per_id": 3})
    assert Policy.of(per_id()).to_json()["differential_privacy"]["unit"] == "id"
    assert Policy.of(Policy.of(per_id()).to_json()) == Policy.of(per_id())
    assert "unit" not in Policy.of(policy()).to_json()["differential_privacy"]


# Federations


def write(folder, rng, sites: int = 3) -> None:
    folder.mkdir()
    for i in range(sites):
        centers = np.array([[5.0, 5.0], [-5.0, 5.0], [0.0, -5.0]])
        patients = rng.integers(0, 3, 200)
        rows = np.repeat(centers[patients], 3, axis=0) + rng.normal(0, 0.3, size=(600, 2))
        lines = [f"p{i}-{j // 3},{x},{y}" for j, (x, y) in enumerate(rows)]
        (folder / f"site-{i + 1}.csv").write_text("\n".join(["patient,x,y", *lines]) + "\n")


def test_a_federation_of_tables_with_ids_says_whom_it_protected(tmp_path, rng, monkeypatch):
    ledgers = []
    monkeypatch.setattr(Ledger, "in_memory", classmethod(lambda cls: ledgers.append(cls(None)) or ledgers[-1]))
    write(tmp_path / "data", rng)
    own = {"differential_privacy": {"bounds": [-8, 8], "epsilon": 8, "delta": 1e-5, "budget": 8, "unit": "id"}}
    settings = {"data": str(tmp_path / "data"), "partition": "none", "k": 3, "epsilon": 8.0, "policy": own}
    result = flareclust.run("dp-lloyd", id_column="patient", unit="id", rows_per_id=2, **settings)
    assert result.params["unit"] == "id"
    assert result.params["rows_per_id"] == 2
    expected = np.array([[-5.0, 5.0], [0.0, -5.0], [5.0, 5.0]])
    np.testing.assert_allclose(result.centroids[np.argsort(result.centroids[:, 0])], expected, atol=0.5)
    assert all("per id, 2 rows of each at most" in entry.what for ledger in ledgers for entry in ledger.entries())
    assert len(result.labels) == 1800  # rows beyond the bound have labels, too
    with pytest.raises(UserError, match="unit=id protects ids, and the rows have none"):
        flareclust.run("dp-lloyd", unit="id", **settings)
    with pytest.raises(JobFailed, match="submit with unit=id"):
        flareclust.run("dp-lloyd", id_column="patient", **settings)


def test_ids_that_are_split_over_sites_are_warned_of(tmp_path, rng, caplog):
    write(tmp_path / "data", rng, sites=1)
    own = policy(bounds=(-8.0, 8.0), epsilon=8.0, budget=8.0)
    own["differential_privacy"] |= {"unit": "id"}
    settings = {"k": 3, "epsilon": 8.0, "policy": own, "unit": "id", "rows_per_id": 3, "n_sites": 2}
    result = flareclust.run("dp-lloyd", data=str(tmp_path / "data" / "site-1.csv"), id_column="patient", **settings)
    assert len(result.centroids) == 3
    assert "ids have rows at several sites" in caplog.text
    settings |= {"secure_sums": True, "n_sites": 3}
    with pytest.raises(UserError, match="with secure sums the noise covers ids that are at one site only"):
        flareclust.run("dp-lloyd", data=str(tmp_path / "data" / "site-1.csv"), id_column="patient", **settings)


def test_the_warning_beforehand_counts_the_rows_that_are_used(tmp_path, rng, caplog):
    rows = rng.normal(size=(3000, 2))
    lines = [f"p{i % 15},{x},{y}" for i, (x, y) in enumerate(rows)]
    (tmp_path / "rows.csv").write_text("\n".join(["patient,x,y", *lines]) + "\n")
    own = policy(bounds=(-8.0, 8.0), epsilon=1.0, budget=1.0)
    own["differential_privacy"] |= {"unit": "id"}
    settings = {"k": 3, "policy": own, "unit": "id", "n_sites": 1, "id_column": "patient"}
    flareclust.run("dp-lloyd", data=str(tmp_path / "rows.csv"), **settings)
    assert "and there are 15;" in caplog.text


def test_the_files_of_simulated_sites_have_the_ids(tmp_path):
    table = Table(np.arange(6.0).reshape(3, 2), ("x", "y"), ids=ids_of(["a", "b", "a"]))
    bare = Table(table.X, ids=table.ids)
    _place(tmp_path, {"one": table, "two": bare}, None, None, with_ids=True)
    for site, columns in (("one", ("x", "y")), ("two", None)):
        found = SiteData.of(tmp_path / "workspace" / "local", site).table()
        assert found.ids is not None
        assert list(found.ids) == ["a", "b", "a"]
        assert found.columns == columns
        np.testing.assert_array_equal(found.X, table.X)
