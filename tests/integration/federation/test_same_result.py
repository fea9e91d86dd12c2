"""Between provisioned sites with mTLS: the same bits as in one process, labels at the sites only, names hidden."""

import re
import stat
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from harness import LEAD, SERVER
from jobs import Job

from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job
from flareclust.protocol.outcome import Outcome, read
from flareclust.protocol.registry import get
from flareclust.testing.promised import overlapping_sites

pytestmark = pytest.mark.slow

OPTIONS = JobOptions(k=5, seed=3, min_sites=3)

SALT = "only the sites know this text, and nobody else"


def check_same(there: Outcome, here: Outcome, files: Mapping[str, Path]) -> None:
    assert set(there.arrays) == set(here.arrays)
    for array, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], value, err_msg=array)
    assert there.metrics == here.metrics
    assert there.sites == sorted(files)
    assert there.refused == {}


@pytest.mark.smoke
def test_one_job_with_labels_at_the_sites_only(federation, files):
    there = Job(federation, get("feca"), OPTIONS).outcome()
    here = run_inprocess(get("feca"), {}, files, OPTIONS)
    check_same(there, here, files)
    for site in files:
        folder = federation.kit(site) / there.job
        assert stat.S_IMODE((folder / LABELS_FILE).stat().st_mode) == 0o600
        np.testing.assert_array_equal(read_labels(folder), here.labels[site])
    for host in (SERVER, LEAD):
        assert not list(federation.kit(host).rglob(f"*{LABELS_FILE}*"))


def test_jobs_side_by_side_equal_one_process_bit_for_bit(federation, files, tmp_path):
    """Three are submitted by our engine, one is exported and goes through NVFlare's own API."""
    jobs = {name: Job(federation, get(name), OPTIONS) for name in ("kfed", "fkm", "lloyd")}
    folder = export_job(build_job(get("feca"), {}, OPTIONS), tmp_path / "feca")
    there = {"feca": read(federation.run(folder))[0]} | {name: job.outcome() for name, job in jobs.items()}
    for name, outcome in there.items():
        check_same(outcome, run_inprocess(get(name), {}, files, OPTIONS), files)


def test_masked_hides_names_and_the_salt_from_the_server(federation):
    tables = overlapping_sites()[0]
    for site, table in tables.items():
        file = federation.kit(site) / "data" / "named.npz"
        np.savez(file, allow_pickle=False, X=table.X, columns=np.array(table.columns))
        hide = sorted({"iron", "lactate"} & set(table.columns))
        federation.configure(site, path=str(file), salt=SALT, hide=hide)
    options, params = JobOptions(k=4, seed=3, min_sites=3), {"scale": "standard"}
    there = Job(federation, get("masked"), options, params).outcome()

    here = run_inprocess(get("masked"), params, tables, options)
    names, there_names = here.arrays["column_names"].tolist(), there.arrays["column_names"].tolist()
    shown = [name for name in there_names if not name.startswith("hidden-")]
    assert set(shown) == set(names) - {"iron", "lactate"}
    assert len(there_names) == len(names)
    for name in shown:
        np.testing.assert_array_equal(
            there.centroids[:, there_names.index(name)], here.centroids[:, names.index(name)], err_msg=name
        )
    files = [path for path in federation.kit(SERVER).rglob("*") if path.is_file()]
    assert any(there.job in str(file) for file in files), "nothing of the job is kept at the server: what was searched?"
    for file in files:
        content = file.read_bytes()
        for secret in (SALT, "iron", "lactate"):
            word = rb"(?<![A-Za-z])" + secret.encode() + rb"(?![A-Za-z])"  # "environment" discloses nothing
            assert re.search(word, content) is None, f"{secret!r} is in {file}"
