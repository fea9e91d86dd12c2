"""A site's own Dask cluster in its configuration: the key, and one clear sentence for what is wrong; no cluster is started."""

import socket
import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.data import file_formats
from flareclust.privacy.policy import Policy
from flareclust.sites import cluster as site_cluster
from flareclust.sites.check import check, local_of
from flareclust.sites.cluster import is_address
from flareclust.sites.policy_file import write_policy
from tests.mlflow_server import free_port
from tests.unit.sites.site_cases import site


@pytest.fixture
def parts(local):
    folder = local / "visits"
    folder.mkdir()
    for number in range(2):
        pa.parquet.write_table(pa.table({"x": [1.0, 2.0], "y": [3.0, 4.0]}), folder / f"part.{number}.parquet")
    return folder


def refusal(data, *, owner=False):
    with pytest.raises(Refusal) as refused:
        data.on_cluster(reader_owns_them=owner)
    return str(refused.value)


@pytest.mark.parametrize("address", ["dask://10.0.0.5:8786", "dask://head:1", "dask://[::1]:8786"])
def test_an_address_has_a_scheme_a_host_and_a_port(local, parts, address):
    assert site(local, path="visits", compute=address).compute == address


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5:8786",
        "tcp://10.0.0.5:8786",
        "dask://10.0.0.5",
        "dask://10.0.0.5:none",
        "dask://10.0.0.5:99999",
        "dask://:8786",
        "dask://me:secret@10.0.0.5:8786",
        "dask://10.0.0.5:8786/x",
        "dask://[::1",
        "",
        8786,
        True,
        ["dask://10.0.0.5:8786"],
    ],
)
def test_what_is_no_address_is_refused_without_being_repeated(local, parts, address):
    assert not is_address(address)
    with pytest.raises(Refusal, match=r"compute is no address such as dask://10\.0\.0\.5:8786") as refused:
        site(local, path="visits", compute=address)
    assert "secret" not in str(refused.value)


def test_a_schema_beside_a_cluster_is_refused(local, parts):
    with pytest.raises(Refusal, match="compute is beside a schema"):
        site(local, path="visits", schema="schema.yaml", compute="dask://127.0.0.1:1")


def test_a_cluster_that_nobody_listens_for_is_one_refusal_within_seconds(local, parts):
    address = f"dask://127.0.0.1:{free_port()}"
    data = site(local, path="visits", compute=address)
    started = time.monotonic()
    text = refusal(data)
    assert time.monotonic() - started < 3 * site_cluster.CONNECT
    assert text == "cannot use its Dask cluster; why is in the site's own log, and flareclust site check says it"
    assert f"no Dask scheduler answers at {address}" in refusal(data, owner=True)


def test_a_port_of_another_program_is_one_refusal_within_a_bounded_time(local, parts, monkeypatch):
    monkeypatch.setattr(site_cluster, "CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        data = site(local, path="visits", compute=f"dask://127.0.0.1:{silent.getsockname()[1]}")
        assert "no Dask scheduler answers" in refusal(data, owner=True)


def test_a_missing_package_is_named_with_its_extra(local, parts, monkeypatch):
    monkeypatch.setattr("flareclust._foundation.extras.find_spec", lambda name: None)
    text = refusal(site(local, path="visits", compute="dask://127.0.0.1:1"), owner=True)
    assert "needs distributed; install the extra: python -m pip install 'flareclust[compute]'" in text


def test_other_files_than_parquet_are_refused_before_a_cluster_is_looked_for(local):
    (local / "rows.csv").write_text("x,y\n1,2\n")
    assert "reads parquet files only" in refusal(site(local, path="rows.csv", compute="dask://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"columns": ["z"]}, "has no column 'z'"),
        ({"min_rows": 9}, "fewer than the min_rows"),
        ({"hide": ["z"], "salt": "a salt of enough characters"}, "hide names columns that are not there"),
        ({"id": "z"}, "has no"),
    ],
)
def test_what_headers_say_is_refused_before_a_cluster_is_looked_for(local, parts, keys, told):
    assert told in refusal(site(local, path="visits", compute="dask://127.0.0.1:1", **keys), owner=True)


def test_a_part_with_other_columns_is_refused_before_a_cluster_is_looked_for(local, parts):
    pa.parquet.write_table(pa.table({"x": [1.0], "z": [3.0]}), parts / "part.2.parquet")
    data = site(local, path="visits", compute="dask://127.0.0.1:1")
    assert "part.2.parquet has other columns than part.0.parquet" in refusal(data, owner=True)
    assert "part" not in refusal(data)


def test_site_check_says_what_is_wrong_with_the_cluster(kit):
    folder = kit.parent / "visits"
    folder.mkdir()
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0]}), folder / "part.0.parquet")
    address = f"dask://127.0.0.1:{free_port()}"
    (kit / "local" / "flareclust.yaml").write_text(f"path: {folder}\ncompute: {address}\n")
    (error,) = check(kit).errors
    assert error.startswith(f"north cannot compute: no Dask scheduler answers at {address}")
    write_policy(local_of(kit), Policy())
    (error,) = check(kit).errors
    assert "and has a policy, whose groups of rows are made in one process" in error


class Cluster:
    """Stands for a client of a cluster, whose processes say this of their versions."""

    def __init__(self, workers, scheduler=None):
        self.workers, self.scheduler = workers, site_cluster.versions() if scheduler is None else scheduler

    def run(self, function, *arguments, **options):
        if function is site_cluster.versions:
            return self.workers
        return {place: function(*arguments) for place in self.workers}

    def run_on_scheduler(self, function):
        if isinstance(self.scheduler, Exception):
            raise self.scheduler
        return self.scheduler


OWN = site_cluster.versions()
WORKER = "tcp://10.0.0.6:40001"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Cluster({}), "has no workers; start some"),
        (Cluster({WORKER: ModuleNotFoundError("flareclust")}), f"the worker {WORKER} of .* cannot import flareclust"),
        (Cluster({WORKER: OWN}, ModuleNotFoundError("flareclust")), "the scheduler of .* cannot import flareclust"),
        (Cluster({WORKER: {**OWN, "numpy": "1.0"}}), f"the worker {WORKER} of .* has numpy 1.0 where the site has"),
        (Cluster({WORKER: {"Python": OWN["Python"]}}), "has no flareclust, no .* where the site has flareclust"),
    ],
)
def test_a_cluster_of_other_versions_or_without_workers_is_one_error(found, told):
    with pytest.raises(site_cluster.ClusterUnusable, match=told):
        site_cluster._check_workers(found, [])
    assert site_cluster._check_workers(Cluster({WORKER: OWN, f"{WORKER}0": OWN}), []) == 2


def test_the_scheduler_is_looked_for_at_its_address(monkeypatch):
    places = []

    def create_connection(place, timeout):
        places.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(site_cluster.ClusterUnusable):
        site_cluster._connect("tcp://scheduler.hospital.example:8786")
    assert places == [("scheduler.hospital.example", 8786)]


def test_a_file_that_is_another_for_a_worker_is_counted(parts):
    stamps = [file_formats.FileFingerprint.of(file) for file in sorted(parts.iterdir())]
    assert site_cluster._check_workers(Cluster({WORKER: OWN}), stamps) == 1
    (parts / "part.1.parquet").write_bytes(b"others")
    with pytest.raises(site_cluster.ClusterUnusable, match=r"does not see 1 of the 2 files"):
        site_cluster._check_workers(Cluster({WORKER: OWN}), stamps)


def test_rows_that_repeat_an_id_are_counted_over_all_parts(caplog):
    def with_ids(*parts):
        found = object.__new__(site_cluster.DaskParts)
        found._sources, found._client = parts, SimpleNamespace(map=lambda function, sources, pure: sources)
        found._gathered = lambda futures, aborted: futures
        return list(found.ids())

    assert with_ids(["a", "b"], ["c"]) == ["a", "b", "c"]
    assert caplog.text == ""
    assert with_ids(["a", "b"], ["b", "c", "a"]) == ["a", "b", "b", "c", "a"]
    assert "2 of 5 rows were" in caplog.text
