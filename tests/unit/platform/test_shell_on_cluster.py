"""The executor of a site with a Dask cluster of two worker processes: as alone, also where a worker is killed."""

import logging
import os
import signal
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType

from flareclust._foundation.errors import Refusal
from flareclust.core.part_kmeans import _kmeans
from flareclust.data import file_formats
from flareclust.data.labels import LABELS_FILE
from flareclust.executors.lloyd import LloydExecutor
from flareclust.executors.pooled import PooledExecutor
from flareclust.federation.aggregator import unpack
from flareclust.federation.refinement import UPDATE
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName
from flareclust.sites import cluster as site_cluster
from flareclust.sites.check import check
from flareclust.sites.rows import SiteData
from flareclust.sites.withdrawn import withdraw
from tests.patience import PATIENCE
from tests.unit.platform.test_nvflare_shell import ask

distributed = pytest.importorskip(
    "distributed", reason="distributed is not installed: pip install 'flareclust[compute]'"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

N, D, K = 20_000, 4, 5


@pytest.fixture(scope="module")
def two_workers():
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", **quiet
    ) as found:
        yield found


@pytest.fixture
def local(context, tmp_path):
    """The site's folder, whose rows are six parquet parts of different sizes."""
    rng = np.random.default_rng(5)
    X = 5 * rng.normal(size=(K, D))[rng.integers(K, size=N)] + rng.normal(size=(N, D))
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate(np.split(np.arange(N), [700, 701, 5000, 5000, 15_000])):
        columns = {f"c{j}": X[rows, j] for j in range(D)} | {"patient": [f"p{row}" for row in rows]}
        pa.parquet.write_table(pa.table(columns), tmp_path / "rows" / f"part.{number}.parquet")
    return tmp_path / "local"


def configure(local, cluster=None):
    address = "" if cluster is None else f"compute: {cluster.scheduler_address.replace('tcp', 'dask')}\n"
    (local / "flareclust.yaml").write_text(f"path: ../rows\nid: patient\n{address}")
    return SiteData.of(local, "site-1", reader_owns_them=True)


def arrays(reply):
    found = dict(from_shareable(reply).data)
    assert found.pop(SECONDS) >= 0
    return found


def same(found, alone):
    assert found.keys() == alone.keys()
    for name, value in alone.items():
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(found[name], value)
        else:
            np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)


@pytest.fixture
def on_cluster(local, two_workers):
    table = configure(local, two_workers).on_cluster(reader_owns_them=True)
    yield table
    table.parts.close()


def kill_one(client):
    """Kill the process of a worker; the cluster starts another one."""
    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)


def test_withdrawn_rows_are_left_out_as_by_the_site_alone(context, local, tmp_path, two_workers):
    withdraw(local, ["p3", "p6000", "nobody"])
    sent, found = {"centroids": np.zeros((1, D))}, []
    for cluster in (None, two_workers):
        configure(local, cluster)
        executor = LloydExecutor(1)
        reply = arrays(ask(executor, StepName.ASSESS, sent, context))
        executor.handle_event(EventType.END_RUN, context)
        found.append((reply, (tmp_path / "job" / LABELS_FILE).read_text()))
    (alone, lines), (there, labels) = found
    same(there, alone)
    assert labels == lines
    assert (alone["counts"].tolist(), ",p3," in labels, ",p4," in labels) == ([N - 2], False, True)
    table = configure(local, two_workers).on_cluster(reader_owns_them=True)
    assert table.withdrawn == 2
    table.parts.close()
    withdraw(local, ["p700"])  # all of a part
    with pytest.raises(Refusal, match="all rows, or all of a part on a cluster, are left out"):
        configure(local, two_workers).on_cluster()


@pytest.mark.smoke
def test_replies_and_labels_are_those_of_the_site_alone(context, local, tmp_path, two_workers):
    def answered(executor):
        """Return the replies to three steps, and the lines of the labels file."""
        seeds = arrays(ask(executor, StepName.CLUSTER, {}, context))
        sent = {"centroids": np.ascontiguousarray(seeds["centroids"])}
        replies = [
            seeds,
            arrays(ask(executor, UPDATE, sent, context)),
            arrays(ask(executor, StepName.ASSESS, sent, context)),
        ]
        executor.handle_event(EventType.END_RUN, context)
        return replies, (tmp_path / "job" / LABELS_FILE).read_text()

    configure(local)
    alone, lines = answered(LloydExecutor(K))
    configure(local, two_workers)
    found, labels = answered(LloydExecutor(K))
    for here, there in zip(alone, found, strict=True):
        same(there, here)
    assert labels == lines
    assert labels.startswith("row,patient,label\n0,p0,")
    configure(local)
    alone = arrays(ask(PooledExecutor(K), StepName.CLUSTER, {}, context))
    configure(local, two_workers)
    same(arrays(ask(PooledExecutor(K), StepName.CLUSTER, {}, context)), alone)


@pytest.mark.smoke
def test_rows_go_when_the_job_ends(context, local, two_workers):
    configure(local, two_workers)
    executor = LloydExecutor(K)
    ask(executor, StepName.CLUSTER, {}, context)
    with distributed.Client(two_workers, set_as_default=False) as client:
        assert any(client.has_what().values())
        executor.handle_event(EventType.END_RUN, context)
        client.sync(client.scheduler.identity)
        assert not any(client.has_what().values())


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(on_cluster):
    alone = _kmeans(on_cluster.parts, K, np.random.default_rng(0))
    asked = []

    def kill_once():
        asked.append(1)
        if len(asked) == 3:
            kill_one(on_cluster.parts._client)
        return False

    found = _kmeans(on_cluster.parts.until(kill_once), K, np.random.default_rng(0))
    assert len(asked) > 3
    np.testing.assert_array_equal(found.centroids, alone.centroids)
    np.testing.assert_array_equal(found.counts, alone.counts)


def test_a_cluster_that_goes_is_one_refusal(local, context, monkeypatch):
    monkeypatch.setattr(site_cluster, "_ALONE", 2.0)
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", **quiet) as cluster:
        configure(local, cluster)
        executor = LloydExecutor(K)
        seeds = arrays(ask(executor, StepName.CLUSTER, {}, context))
        cluster.scale(0)
        _, problem = unpack(ask(executor, UPDATE, seeds, context))
        assert problem == "lost its Dask cluster while it computed: no worker is left"
    _, problem = unpack(ask(executor, UPDATE, seeds, context))
    assert problem == "lost its Dask cluster while it computed: its scheduler is gone"


@pytest.mark.smoke
def test_a_changed_part_is_refused(local, on_cluster, context):
    configure(local)
    part = local.parent / "rows" / "part.2.parquet"
    os.utime(part, ns=(0, 0))
    with pytest.raises(Refusal, match="its file changed while the job ran"):
        on_cluster.parts.check_unchanged()


@pytest.mark.smoke
def test_cells_that_are_no_numbers_are_named_at_the_site(local, two_workers):
    table = pa.table({f"c{j}": [1.0, None] for j in range(D)} | {"patient": ["p", "q"]})
    pa.parquet.write_table(table, local.parent / "rows" / "part.9.parquet")
    data = configure(local, two_workers)
    with pytest.raises(Refusal, match=r"part\.9\.parquet.*row 2, column 'c0'"):
        data.on_cluster(reader_owns_them=True)
    with pytest.raises(Refusal) as refused:
        replace(data).on_cluster()
    assert "part.9" not in str(refused.value)


@pytest.mark.smoke
def test_site_check_describes_the_cluster(local, two_workers, capsys):
    (local.parent / "startup").mkdir(exist_ok=True)
    configure(local, two_workers)
    with distributed.Client(two_workers, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=PATIENCE)  # another test may have killed one
    checked = check(local.parent, "site-1")
    assert not checked.errors
    assert checked.rows.number == N
    assert (
        f"on the Dask cluster {two_workers.scheduler_address.replace('tcp', 'dask')}, 2 workers"
        in checked.facts["kept"]
    )


@pytest.mark.smoke
def test_other_versions_and_unseen_files_are_named_with_their_worker(local, on_cluster, monkeypatch, tmp_path):
    client = on_cluster.parts._client
    missing = file_formats.FileFingerprint(tmp_path / "rows" / "part.77.parquet", 1, 1)
    with pytest.raises(site_cluster.ClusterUnusable, match=r"worker tcp://127.* does not see 1 of the 1 files"):
        site_cluster._check_workers(client, [missing])
    monkeypatch.setattr(site_cluster, "__version__", "0.0.1")
    with pytest.raises(
        site_cluster.ClusterUnusable,
        match=r"has flareclust .* where the site has flareclust 0\.0\.1; install the same",
    ):
        site_cluster._check_workers(client, [])
