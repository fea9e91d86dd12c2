"""Sites in NVFlare's simulator that compute on a Dask cluster of two worker processes: the result is that of the sites alone."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform import simulator
from flareclust.platform.simulator import run_simulator
from flareclust.protocol.registry import get
from flareclust.sites.config import CONFIG_FILE, write_config
from tests.patience import PATIENCE

distributed = pytest.importorskip(
    "distributed", reason="distributed is not installed: pip install 'flareclust[compute]'"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * PATIENCE)]


@pytest.fixture
def folders(tmp_path):
    """The rows of two sites, each in a folder of three parts."""
    rng = np.random.default_rng(3)
    centers = 6 * rng.normal(size=(5, 3))
    found = {}
    for site in ("site-1", "site-2"):
        X = centers[rng.integers(5, size=3000)] + rng.normal(size=(3000, 3))
        found[site] = tmp_path / "data" / site
        found[site].mkdir(parents=True)
        for number, part in enumerate(np.split(X, [100, 1700])):
            table = pa.table({name: part[:, j] for j, name in enumerate("abc")})
            pa.parquet.write_table(table, found[site] / f"part.{number}.parquet")
    return found


def test_sites_with_a_cluster_come_to_what_they_come_to_alone(folders, tmp_path, monkeypatch):
    options = JobOptions(k=5, seed=3)
    alone = run_inprocess(get("lloyd"), {}, folders, options)
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", **quiet) as cluster:

        def with_cluster(local, *arguments, **settings):
            write_config(local, *arguments, **settings)
            with (local / CONFIG_FILE).open("a") as file:
                file.write(f"compute: {cluster.scheduler_address.replace('tcp', 'dask')}\n")

        monkeypatch.setattr(simulator, "write_config", with_cluster)
        found = run_simulator(get("lloyd"), {}, folders, options, tmp_path / "out")
        with distributed.Client(cluster, set_as_default=False) as client:
            kept = client.has_what()
    assert not found.refused
    assert found.n_rounds == alone.n_rounds
    np.testing.assert_allclose(found.centroids, alone.centroids, rtol=1e-12)
    for site in folders:
        np.testing.assert_array_equal(found.labels[site], alone.labels[site])
    for metric, value in alone.metrics.items():
        assert found.metrics[metric] == pytest.approx(value, rel=1e-12)
    assert len(kept) == 2
    assert not any(kept.values()), "rows stay on the cluster after the job"
