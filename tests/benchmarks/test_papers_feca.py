"""FeCA's entries: the paper's values as printed, FeCA without its steps, and what the tables are made of."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.papers import base, feca, feca_methods, feca_steps, feca_tables
from benchmarks.papers import feca_values as printed
from benchmarks.papers.base import Study, Value, run_entry
from benchmarks.papers.feca_methods import ABLATED, AblatedExecutor, OnSites, one_lloyd_step
from flareclust._foundation.errors import UserError
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.data import datasets
from flareclust.data.datasets import Dataset
from flareclust.evaluation import metrics
from flareclust.executors.feca import FeCAExecutor
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.protocol import registry
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from tests.computed import computed

pytestmark = pytest.mark.slow

FEDERATED = ("mavg", "ffcm-v1-r1", "ffcm-v1-r10", "ffcm-v2-r1", "ffcm-v2-r10", "kfed-k5", "feca")


# ---- what the paper prints ----


@pytest.mark.parametrize("table", [printed.L2, printed.PURITY, printed.NMI])
def test_the_main_tables_are_complete(table):
    keys = {(method, data, split) for method in FEDERATED for data in printed.SETS for split in printed.SPLITS}
    assert set(table) == keys


def test_single_values_stand_where_the_paper_has_them():
    assert printed.L2["ffcm-v2-r10", "s2", "iid"] == Value(32.9, 0.5)
    assert printed.L2["kfed-k5", "s4", "dirichlet:0.1"] == Value(47.5, 8.6)
    assert printed.PURITY["ffcm-v1-r1", "s3", "dirichlet:0.3"].mean == 0.60
    assert printed.NMI["feca", "s2", "dirichlet:0.1"].mean == 0.90
    assert printed.L2_CENTRAL["s3"] == Value(25.4, 19.1)
    assert printed.SHARE_5_L2[7] == Value(1.6, 0.4)
    assert printed.SHARE_M_L2[15] == Value(1.0, 0.2)
    assert [str(value) for value in printed.cifar(10, "kfed-k3", "dirichlet:0.1")] == ["0.51", "0.52"]
    assert printed.cifar(100, "kfed-k3", "iid") is None
    assert printed.cifar(0, "feca", "iid") is None


def test_tables_that_repeat_each_other_do():
    """Tables 5, 6 and 10 restate Table 1: l2 as it is, the MSE as (l2)^2 / 15."""
    for split in printed.SPLITS:
        l2 = printed.L2["feca", "s1", split]
        assert printed.RADII["empirical"][split] == l2
        assert printed.VARYING_K[15, 15][split].mean == pytest.approx((l2.mean * 1e4) ** 2 / 15 / 1e6, abs=0.05)
        assert feca_steps.as_l2(printed.VARYING_K[15, 15][split]).mean == pytest.approx(l2.mean, abs=0.01)
    assert printed.ABLATION["removing"] == printed.VARYING_K[15, 15]["iid"]
    assert (
        len(printed.K_LOCAL) == len(printed.K_LOCAL_L2) == len(printed.K_LOCAL_PURITY) == len(printed.K_LOCAL_NMI) == 14
    )
    assert len(printed.CLIENTS) == len(printed.SHARE_5_L2) == len(printed.SHARE_M_L2) == 20


def test_the_mse_is_that_of_the_mean_l2():
    cell = study_trials.Cell({}, {"l2": 30_000.0}, {"l2": 1.0}, 10, 0)
    assert feca_steps.mse(cell) == pytest.approx(60.0)  # 9e8 / 15 / 1e6
    assert math.isnan(feca_steps.mse(None))


# ---- FeCA without its steps ----


def local(executor, X, site="site-1"):
    return computed(executor, Task(StepName.CLUSTER, 0, {}, site), X, stream(0, 0, site), never_abort)


def test_with_all_steps_the_ablated_site_is_fecas_own():
    for site, X in iid_sites()[0].items():
        own, ablated = local(FeCAExecutor(6), X, site), local(AblatedExecutor(6), X, site)
        assert own.keys() == ablated.keys()
        for name in own:
            np.testing.assert_array_equal(own[name], ablated[name])


def test_without_removal_every_centroid_is_sent():
    X = next(iter(iid_sites()[0].values()))  # four clusters: of six centroids, two share one with another
    assert len(local(AblatedExecutor(6, remove=False), X)["centroids"]) == 6
    assert len(local(AblatedExecutor(2, k_local=6, remove=False), X)["centroids"]) == 6


def test_the_site_and_the_federation_may_have_different_k():
    sites, _ = iid_sites()[:2]
    X = np.concatenate(list(sites.values()))
    truth = np.array([X[:1].mean(axis=0)] * 4) + np.arange(4)[:, None]
    data = Dataset("toy", X, np.zeros(len(X), dtype=np.int64), truth)
    for k, expected in ((3, 3), (4, 4)):
        done = OnSites(ABLATED, {"k_local": 5, "remove": False}, k=k, n_sites=3).measure(data, 0)
        assert done.final["centroids_found"] == expected


def test_wrong_settings_of_the_ablated_site_are_refused():
    with pytest.raises(UserError, match="k_local must be an integer of at least 1"):
        AblatedExecutor(4, k_local=0)
    with pytest.raises(UserError, match="remove must be true or false"):
        AblatedExecutor(4, remove="no")


# ---- clients with a share of the rows ----


def grid():
    return datasets.load("grid16")


def test_clients_with_a_share_have_it_each_and_no_row_twice(monkeypatch):
    seen = {}
    monkeypatch.setattr(feca_methods, "run_inprocess", lambda algorithm, params, sites, options: _stop(seen, sites))
    with pytest.raises(InterruptedError):
        OnSites(registry.get("feca"), k=16, n_sites=7, share=0.05).measure(grid(), 3)
    assert [len(rows) for rows in seen.values()] == [40] * 7  # 5 % of 800
    everything = np.concatenate(list(seen.values()))
    assert len(np.unique(everything, axis=0)) == 280


def _stop(seen, sites):
    seen.update(sites)
    raise InterruptedError


def test_the_measure_is_taken_on_all_rows_after_one_lloyd_step():
    data = grid()
    done = OnSites(registry.get("central"), {"n_init": 1}, k=16, n_sites=1, share=0.25, polish=True).measure(data, 0)
    centroids = registry.get("central").function()
    rng = stream(0, 0, "partition")
    rows = rng.permutation(np.arange(800))[:200]
    found = centroids(data.X[rows], k=16, seed=0, n_init=1)
    nearest = ((data.X[:, None] - found[None]) ** 2).sum(axis=2).argmin(axis=1)
    moved = np.array([data.X[nearest == r].mean(axis=0) for r in range(16)])
    labels = ((data.X[:, None] - moved[None]) ** 2).sum(axis=2).argmin(axis=1)
    majority = sum(np.bincount(data.y[labels == r]).max() for r in range(16)) / 800
    assert done.final["purity"] == pytest.approx(majority)
    assert done.final["l2"] == pytest.approx(metrics.l2_distance(found, data.centroids))


def test_a_centroid_without_rows_stays_where_it_is():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    np.testing.assert_array_equal(one_lloyd_step(X, np.array([[0.0], [20.0], [5.0]])), [0, 0, 2, 2])


# ---- the entries, with runs that cost nothing ----


def canned(trials):
    """Answer every trial with the same made-up qualities."""
    centres = {f"centre_{c:02}": 0.3 for c in range(15)}
    final = {"l2": 20_000.0, "purity": 0.9, "nmi": 0.8, "centroids_found": 14.0, "sigma_max": 0.4, "within": 1.0}
    final |= {"objective": 2e12, "best": 1e12, "ratio": 2.0} | centres
    final |= {f"{key}_{round_}": 0.5 for key in ("accuracy", "nmi") for round_ in range(16)}
    return [study_trials.TrialRun(trial, study_trials.TrialResult(final)) for trial in trials]


@pytest.fixture
def no_files(monkeypatch):
    """Let the entries find small data sets of the right names."""
    rng = np.random.default_rng(0)

    def load(name):
        k = 10 if str(name).startswith(("digits", "mnist")) else 15
        centroids = rng.normal(size=(k, 2))
        return Dataset(str(name), np.repeat(centroids, 2, axis=0), np.repeat(np.arange(k), 2), centroids)

    monkeypatch.setattr(datasets, "load", load)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("entry", feca.ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_has_a_table_a_figure_and_words_from_one_call(entry, quick, no_files, tmp_path):
    calls = []

    def runner(trials):
        calls.append([trial.key("x") for trial in trials])
        return canned(trials)

    made = run_entry(entry, Study(seeds=2, quick=quick, runner=runner))
    assert len(calls) == 1
    assert len(set(calls[0])) == len(calls[0])
    assert made.lines
    assert made.about
    assert made.notes
    assert made.title.startswith("FeCA, ")
    keys = [tuple(line.cells.items()) for line in made.lines]
    assert len(set(keys)) == len(keys)
    assert all(line.ours not in ("", base.NOTHING) and "nan" not in line.ours for line in made.lines)
    assert all("14 found" in line.ours for line in made.lines if "2.0 ±" in line.ours)
    assert not any("nan" in note.split() for note in made.notes)
    assert made.figure is not None
    path = tmp_path / "figure.png"
    made.figure.savefig(path, dpi=80)
    assert path.stat().st_size < 120_000


@pytest.mark.parametrize(
    ("name", "with_paper", "lines"),
    [("feca-table1", 2 * (4 * (3 * 7 + 1)), 2 * 4 * (3 * 11 + 2)), ("feca-table7", 28, 28), ("feca-table8", 80, 80)],
)
def test_the_paper_stands_beside_every_value_that_it_has(name, with_paper, lines, no_files):
    (entry,) = [entry for entry in feca.ENTRIES if entry.name == name]
    made = run_entry(entry, Study(seeds=1, runner=canned))
    assert len(made.lines) == lines
    assert sum(line.paper != base.NOTHING for line in made.lines) == with_paper
    words = [line.reading.rpartition("; ")[2] for line in made.lines if line.paper != base.NOTHING]
    assert set(words) <= {"agrees", "lower", "higher"}


def test_features_of_ones_own_stand_beside_cifar(tmp_path):
    file = tmp_path / "resnet.npz"
    rng = np.random.default_rng(0)
    np.savez(file, X=rng.normal(size=(60, 4)), y=np.repeat(np.arange(10), 6))
    made = feca_tables.table2(Study(seeds=5, runner=canned, features=file))
    assert made.seeds == 3
    assert made.notes == []
    (line,) = [
        one for one in made.lines if one.cells == {"data": "resnet", "split": "dirichlet:0.1", "method": "kfed-k3"}
    ]
    assert line.paper == "0.51, 0.52 (CIFAR-10)"
    np.savez(file, X=rng.normal(size=(60, 4)))
    with pytest.raises(UserError, match="need the classes; add `y`"):
        feca_tables.table2(Study(seeds=1, runner=canned, features=file))


def test_data_that_cannot_be_had_are_left_out_of_table_2_and_named(monkeypatch):
    data = grid()

    def load(name):
        if name.startswith("mnist"):
            raise UserError("no network")
        return replace(data, name=name)

    monkeypatch.setattr(datasets, "load", load)
    made = feca_tables.table2(Study(seeds=1, runner=canned))
    assert {line.cells["data"] for line in made.lines} == {"digits", "digits:pca50"}
    assert "mnist was left out: no network" in made.notes


# ---- with the real data ----


def test_table_5_in_its_quick_form(shared_data):
    made = run_entry(next(entry for entry in feca.ENTRIES if entry.name == "feca-table5"), Study(seeds=2, quick=True))
    without, with_ = (float(line.ours.split()[0]) for line in made.lines)
    assert without > 10 * with_  # the removal matters, though not as much as the paper says
    assert made.lines[1].ours.endswith("15 found)")
    assert made.failed == 0
