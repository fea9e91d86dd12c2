"""The engine devices: outcomes are those of the in-process engine, bit for bit."""

import numpy as np
import pytest

import flareclust
from flareclust import Devices, UserError
from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust.data.partition import rows_by_site
from flareclust.devices import engine
from flareclust.devices.engine import run_devices
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation import batch_exchanges
from flareclust.federation.batch_exchanges import _checked
from flareclust.federation.exchanges import ExchangeRequest, Sampling
from flareclust.protocol import batch as batches
from flareclust.protocol import registry
from flareclust.protocol.outcome import names_of_sites
from flareclust.protocol.replies import gathered, stacked
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.task import StepName

RUNS = {
    "pooled": ("pooled", {}),
    "pooled, scaled": ("pooled", {"scale": "standard"}),
    "pooled, several starts": ("pooled", {"n_init": 2}),
    "pooled, summary": ("pooled", {"local_kmeans": "summary"}),
    "kfed": ("kfed", {}),
    "kfed, from a device": ("kfed", {"start": "site-7", "k_local": 3, "weighted": True}),
    "lloyd": ("lloyd", {"rounds": 3}),
    "lloyd, open gaps": ("lloyd", {"rounds": 2, "missing": "partial"}),
    "lloyd, cosine": ("lloyd", {"rounds": 2, "metric": "cosine"}),
    "lloyd, capped": ("lloyd", {"rounds": 2, "cap": 2.0}),
    "fkm": ("fkm", {"rounds": 2}),
    "fkm, two updates": ("fkm", {"rounds": 2, "local_iter": 2}),
    "kprototypes": ("kprototypes", {"rounds": 2}),
    "feca": ("feca", {}),
}


def federation(m=60, d=3, k=4):
    rng = np.random.default_rng(m)
    centers = 6 * rng.normal(size=(k, d))
    sites = {}
    for i in range(m):
        n = int(rng.integers(1, 40))
        sites[f"site-{i + 1}"] = centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    sites["site-5"][0, 1] = np.nan
    sites["site-6"][:] = 1.0
    return sites


def as_devices(sites):
    return Devices(np.concatenate(list(sites.values())), np.cumsum([0, *map(len, sites.values())]), list(sites))


def without_times(record):
    return {name: value for name, value in record.items() if name not in ("seconds_merge", "seconds_sites", "ended")}


def in_numbers(records):
    """Records as those of the engine devices: numbers of sites, and the names of those that were not refused before."""
    found, known = [], {}
    for record in records:
        new = {site: why for site, why in record["refused"].items() if site not in known}
        known = record["refused"]
        numbers = {"sites": len(record["sites"]), "refused": len(known), "newly_refused": new}
        found.append({**without_times(record), **numbers})
    return found


@pytest.mark.parametrize("run", RUNS)
def test_outcomes_are_those_of_the_in_process_engine(run, monkeypatch):
    monkeypatch.setattr(engine, "CHUNK", 7)
    algorithm, params = registry.get(RUNS[run][0]), RUNS[run][1]
    sites, options = federation(), JobOptions(k=4, seed=3)
    usual = run_inprocess(algorithm, params, sites, options)
    found = run_devices(algorithm, params, as_devices(sites), options)
    assert found.arrays.keys() == usual.arrays.keys()
    for name, value in usual.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value, strict=True)
    assert found.metrics == usual.metrics
    assert found.refused == usual.refused
    assert ("site-5" in found.refused) == ("missing" not in params)
    assert [without_times(record) for record in found.rounds] == in_numbers(usual.rounds)
    assert (found.bytes_up, found.bytes_down) == (usual.bytes_up, usual.bytes_down)
    assert found.warnings == usual.warnings
    assert not found.labels


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_the_number_of_threads_changes_no_bit(threads, monkeypatch):
    monkeypatch.setattr(engine, "CHUNK", 7)
    lloyd, options = registry.get("lloyd"), JobOptions(k=4, seed=3)
    usual = run_inprocess(lloyd, {}, federation(), options)
    monkeypatch.setattr(engine, "allowed_threads", lambda: threads)
    found = run_devices(lloyd, {}, as_devices(federation()), options)
    assert found.arrays["centroids"].tobytes() == usual.arrays["centroids"].tobytes()
    assert found.metrics == usual.metrics


def test_a_device_that_is_a_cluster_by_itself_is_named_of_up_to_a_thousand(monkeypatch):
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(20, 2)) for i in range(6)}
    sites["site-3"] += 50
    found = flareclust.run("lloyd", as_devices(sites), k=2, engine="devices")
    usual = flareclust.run("lloyd", sites, k=2)
    assert "may be a batch effect: 100 % of its rows are those of site-3" in found.warnings[0]
    assert found.warnings == usual.warnings
    monkeypatch.setattr(batch_exchanges, "_MOST_ASSESSED", 5)
    assert flareclust.run("lloyd", as_devices(sites), k=2, engine="devices").warnings == []


def test_the_senders_of_a_step_are_known_without_their_names_in_the_records():
    sites, options, kfed = federation(), JobOptions(k=4, seed=3), registry.get("kfed")
    usual, found = run_inprocess(kfed, {}, sites, options), run_devices(kfed, {}, as_devices(sites), options)
    assert "site-5" not in names_of_sites(found, StepName.CLUSTER)
    assert names_of_sites(found, StepName.CLUSTER) == names_of_sites(usual, StepName.CLUSTER)
    assert names_of_sites(found, "update") == []
    drawn = run_devices(kfed, {}, as_devices(sites), options, sampling=Sampling(cohort=20, dropout=0, seed=3))
    with pytest.raises(UserError, match="does not keep which sites a cohort had; run without cohort"):
        names_of_sites(drawn, StepName.CLUSTER)


def test_the_batched_steps_are_used(monkeypatch):
    """Without this the equality above would hold with every device asked by itself."""
    sites = {name: rows for name, rows in federation().items() if len(rows) >= 8 and name not in ("site-5", "site-6")}
    monkeypatch.setattr(engine._Asking, "_one", lambda *of: pytest.fail("a device was asked by itself"))
    for name, params in (("pooled", {}), ("kfed", {}), ("lloyd", {"rounds": 2}), ("fkm", {"rounds": 2})):
        assert run_devices(registry.get(name), params, as_devices(sites), JobOptions(k=4)).metrics["inertia"]


def test_run_takes_devices_partitions_and_mappings():
    sites = {f"site-{i}": rows for i, rows in enumerate(np.split(np.random.default_rng(0).normal(size=(80, 2)), 8))}
    usual = flareclust.run("pooled", sites, k=3)
    for data in (as_devices(sites), sites):
        found = flareclust.run("pooled", data, k=3, engine="devices")
        np.testing.assert_array_equal(found.centroids, usual.centroids)
        assert found.n_sites == 8
    usual = flareclust.run("kfed", "iris", n_sites=5, partition="dirichlet:0.5", seed=2)
    found = flareclust.run("kfed", "iris", n_sites=5, partition="dirichlet:0.5", seed=2, engine="devices")
    np.testing.assert_array_equal(found.centroids, usual.centroids)
    assert found.predict(np.zeros((1, 4))).shape == (1,)


def test_a_file_with_owners_makes_devices(tmp_path):
    rng = np.random.default_rng(0)
    X, owners = rng.normal(size=(60, 2)), rng.permutation(np.repeat(np.arange(6), 10))
    np.savez(tmp_path / "rows.npz", X=X, owners=owners)
    found = flareclust.run(
        "pooled", tmp_path / "rows.npz", k=2, partition="owners", engine="devices", out=tmp_path / "out"
    )
    usual = flareclust.run("pooled", {f"site-{i + 1}": X[owners == i] for i in range(6)}, k=2)
    np.testing.assert_array_equal(found.centroids, usual.centroids)
    assert (tmp_path / "out" / "result.json").is_file()
    np.savez(tmp_path / "bad.npz", X=X, owners=owners[1:])
    with pytest.raises(UserError, match="`owners` must hold one integer per row"):
        flareclust.run("pooled", tmp_path / "bad.npz", k=2, partition="owners", engine="devices")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": {"min_count": 3}}, "sites without policies"),
        ({"secure_sums": True}, "sites without policies"),
        ({"resume": "out"}, "keep no checkpoint"),
    ],
)
def test_what_the_engine_does_not_have_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        flareclust.run("pooled", "iris", engine="devices", **settings)


def test_algorithms_for_different_columns_are_refused():
    with pytest.raises(UserError, match="different columns"):
        flareclust.run("masked", "iris", engine="devices")


def test_a_quorum_that_is_missed_names_reasons_and_not_every_device():
    devices = Devices(np.ones((30, 2)), np.arange(0, 31, 2))
    with pytest.raises(JobFailed, match=r"15 sites \(device-0000000, .*device-0000004 and 10 more\): each") as failure:
        run_devices(registry.get("pooled"), {}, devices, JobOptions(k=2))
    assert len(str(failure.value)) < 500


@pytest.mark.parametrize(
    ("starts", "names", "message"),
    [
        ([0, 2, 5], None, "starts must be integers from 0"),
        ([1, 2, 4], None, "starts must be integers from 0"),
        ([0.0, 2.0, 4.0], None, "starts must be integers from 0"),
        ([0, 3, 2, 4], None, "must not fall"),
        ([0, 2, 4], ["a"], "names must be 2 different ones"),
        ([0, 2, 4], ["a", "a"], "names must be 2 different ones"),
        ([0, 2, 4], ["a", "server"], "cannot be a site's name"),
    ],
)
def test_devices_that_do_not_fit_together_are_refused(starts, names, message):
    with pytest.raises(UserError, match=message):
        Devices(np.zeros((4, 2)), starts, names)


def test_devices_are_a_mapping_by_name():
    devices = Devices(np.arange(8.0).reshape(4, 2), [0, 1, 4], ["b", "a"])
    assert list(devices) == ["a", "b"]
    assert devices["b"].tolist() == [[0.0, 1.0]]
    assert {name: len(rows) for name, rows in devices.items()} == {"a": 3, "b": 1}


def test_rows_by_site_are_in_ascending_order_and_leave_out_those_of_none():
    site = np.array([2, 0, -1, 2, 0])
    rows, starts = rows_by_site(site, 4)
    found = [rows[starts[i] : starts[i + 1]].tolist() for i in range(4)]
    assert found == [np.flatnonzero(site == i).tolist() for i in range(4)]


SCHEMA = Schema(centroids="k d", counts=counts("k"), inertia=real("", minimum=0))


def part(**changes):
    fields = {"centroids": np.arange(6.0).reshape(3, 2), "counts": np.array([1, 2, 3])} | changes.get("fields", {})
    totals = {"inertia": np.array([0.5, 1.0])} | changes.get("totals", {})
    return batches.Part(np.array([3, 8]), fields, totals, changes.get("sizes", np.array([1, 2])))


def test_a_batch_holds_the_messages_of_its_sites():
    batch = batches.joined([f"s{i}" for i in range(9)], [part()])
    assert list(batch) == ["s3", "s8"]
    assert batch["s8"]["centroids"].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert batch["s8"]["inertia"] == 1.0
    assert "s8" in batch
    assert "s4" not in batch
    for name in ("centroids", "counts"):
        np.testing.assert_array_equal(gathered(batch.values())[0][name], gathered(list(batch.values()))[0][name])
    np.testing.assert_array_equal(gathered(batch.values())[1], [0, 1, 1])
    np.testing.assert_array_equal(stacked(batch.values(), "inertia"), stacked(list(batch.values()), "inertia"))


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, [3, 8]),
        ({"fields": {"counts": np.array([1, -2, 3])}}, [3]),
        ({"fields": {"centroids": np.array([[np.nan, 0], [1.0, 2], [3, 4]])}}, [8]),
        ({"totals": {"inertia": np.array([-1.0, np.inf])}}, []),
        ({"sizes": np.array([0, 3])}, [8]),
    ],
)
def test_a_bad_reply_of_a_part_is_refused_and_the_others_stay(changes, kept):
    usable, problems = _checked(
        part(**changes), ExchangeRequest(SCHEMA, "update", Round(), [], {"d": 2}, limits={"k": 3})
    )
    assert (usable.places.tolist() if usable else []) == kept
    assert sorted(problems) == sorted({3, 8} - set(kept))


def test_a_part_with_more_entries_than_there_can_be_is_refused():
    with pytest.raises(BadMessage, match="axis k has from 1 to 2 entries"):
        batches.check_part(SCHEMA, part(), {}, {"k": 1})
    with pytest.raises(BadMessage, match="axis d"):
        batches.check_part(SCHEMA, part(), {"d": 3}, {"k": 2})


def test_an_empty_batch_has_nobody():
    assert not batches.Batch([], {}, {}, np.zeros(1, np.int64))


@pytest.mark.parametrize("name", ["lloyd", "fkm"])
def test_rounds_with_a_cohort_are_those_of_the_in_process_engine(name, monkeypatch):
    monkeypatch.setattr(engine, "CHUNK", 7)
    sites, options, sampling = federation(), JobOptions(k=4, seed=3), Sampling(cohort=20, dropout=0.2, seed=3)
    algorithm, params = registry.get(name), {"rounds": 3, "tol": 0.0}
    usual = run_inprocess(algorithm, params, sites, options, sampling=sampling)
    found = run_devices(algorithm, params, as_devices(sites), options, sampling=sampling)
    np.testing.assert_array_equal(found.centroids, usual.centroids, strict=True)
    assert [without_times(record) for record in found.rounds] == in_numbers(usual.rounds)
    *rounds, assessment = found.rounds
    assert len({tuple(record["sites"]) for record in usual.rounds[:-1]}) == len(rounds) == 4
    assert all(10 <= record["sites"] <= 20 for record in rounds)
    assert assessment["sites"] + len(found.refused) == len(sites)
    assert all("drop" not in reason for reason in found.refused.values())


@pytest.mark.parametrize("settings", [{"schema": "schema.yaml"}, {"id_column": "patient"}, {"truth": "diagnosis"}])
def test_tables_that_are_read_column_by_column_are_refused(settings, tmp_path):
    with pytest.raises(
        UserError,
        match=r"takes rows of numbers; leave out table_schema \(--schema\).* or use the engine inprocess, which has outcomes",
    ):
        flareclust.run("pooled", str(tmp_path), k=3, partition="none", engine="devices", **settings)
