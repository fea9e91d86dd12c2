"""Between provisioned sites: the server gets keys and masked words, and nothing for keys of its own."""

import re

import numpy as np
import pytest
import watching
from conftest import LATE, SITES

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import SPREAD, UPDATE
from flareclust.platform.job import build_job, export_job
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.masking import KEYS_ARRAY, KeyTable
from flareclust.privacy.secure_aggregation.own_identity import IDENTITY, fingerprint, make_identity
from flareclust.privacy.secure_aggregation.totals import Layout
from flareclust.protocol.outcome import read
from flareclust.protocol.registry import get
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.sizes import total_sizes
from flareclust.protocol.steps import counts_of
from flareclust.protocol.task import StepName, Task
from flareclust.sites.policy_file import remove_policy, write_policy
from tests.computed import replied

pytestmark = pytest.mark.slow

#: What sites answer with masks.
SUMS = (SPREAD, counts_of(SPREAD), UPDATE, counts_of(UPDATE), StepName.ASSESS, StepName.OWN_CLUSTERS)

OPTIONS = JobOptions(k=5, seed=3, min_sites=3, secure_sums=True)


def job(controller, folder, monkeypatch, options=OPTIONS):
    """Export a job of Lloyd's algorithm whose server is this one."""
    monkeypatch.setattr("flareclust.platform.job.ClusteringController", controller)
    return export_job(build_job(get("lloyd"), {}, options), folder)


def plain_words(step, arrays, rows):
    """Return what a site would send in fixed point if it did not mask it."""
    executor = LloydExecutor(k=5, seed=3)
    asked = {name: value for name, value in arrays.items() if name != KEYS_ARRAY}
    reported = replied(executor, Task(step, 1, asked, "a site"), _table(rows))
    schema = executor.step(step).schema
    return Layout(schema, total_sizes(asked, rows.shape[1])).words(schema.pack(reported)).view(np.int64)


def _table(rows):
    from flareclust.data.tables import Table

    return Table(rows)


@pytest.mark.smoke
def test_the_server_gets_keys_and_masked_words_and_the_totals_have_the_same_bits(
    federation, files, tmp_path, monkeypatch
):
    folder = federation.run(job(watching.WatchingController, tmp_path / "watched", monkeypatch))
    there, here = read(folder)[0], run_inprocess(get("lloyd"), {}, files, OPTIONS)
    for array, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], value, err_msg=array)
    assert (there.metrics, there.refused, there.warnings) == (here.metrics, {}, [])

    with np.load(folder / watching.WATCHED) as seen:
        got = {tuple(name.split("/")): seen[name] for name in seen.files}
    assert {step for step, *_ in got} == {StepName.KEYS, *SUMS}
    names = {(step, name) for step, _, who, name in got if who != "task" and name != SECONDS}
    assert names == {(StepName.KEYS, "key"), (StepName.KEYS, "columns"), *((step, "masked") for step in SUMS)}
    masked = {key: words for key, words in got.items() if key[3] == "masked"}
    assert len(masked) == 3 * (len(there.rounds) - 1)
    every = np.concatenate([words.ravel() for words in masked.values()])
    assert len(np.unique(every)) == len(every), "random words of 64 bits are hardly ever equal"
    for (step, round_, site, _), words in masked.items():
        task = {name: value for (s, r, who, name), value in got.items() if (s, r, who) == (step, round_, "task")}
        plain = plain_words(step, task, np.load(files[site]))
        assert plain.any() == (step != StepName.OWN_CLUSTERS), "these sites have no cluster for themselves"
        assert plain.shape == words.shape
        assert (words != plain).all(), f"{site} sent a number of the step {step} without its mask"
        table = KeyTable.of(task)
        assert table is not None
        assert all(key.certificate and key.signature for key in table.keys.values())


def test_a_server_that_hands_out_a_key_of_its_own_gets_nothing(federation, files, tmp_path, monkeypatch):
    folder = federation.run(job(watching.LyingController, tmp_path / "lied", monkeypatch))
    reported = (folder / "error_log.txt").read_text()
    said = "2 sites (north, west): each was sent a key for secure sums under the name 'south' that this site of the federation"
    assert said in reported
    assert not (folder / "result.npz").exists()


def test_a_server_that_asks_for_sums_of_three_of_four_sites_gets_nothing(federation, tmp_path, monkeypatch):
    """Nor sums without masks: what the job says of itself, its sites hold the server to."""
    federation.start(LATE)
    federation.wait_connected([*SITES, LATE])
    four = OPTIONS.model_copy(update={"min_sites": 4})
    folder = federation.run(job(watching.ThreesController, tmp_path / "threes", monkeypatch, four))
    reported = (folder / "error_log.txt").read_text()
    said = r"sites \(([^)]*)\): each adds up its numbers with those of at least 3 other sites, and was asked to with 2"
    (named,) = re.findall(said, reported)
    assert {LATE, "north", "south"} <= {*named.split(", ")}
    assert not (folder / "result.npz").exists()

    folder = federation.run(job(watching.ForgetfulController, tmp_path / "forgetful", monkeypatch, four))
    reported = (folder / "error_log.txt").read_text()
    asked = f"each lets out sums only masked, and was asked for those of the step {counts_of(SPREAD)} without"
    assert f"4 sites ({', '.join(sorted((LATE, *SITES)))}): {asked}" in reported
    assert not (folder / "result.npz").exists()


@pytest.fixture
def keyless(federation):
    """The federation, whose sites have identities, and in whose kits flareclust finds no key, as in jobs that get none of the kit's."""

    def rename(old, new):
        for site in SITES:
            startup = federation.kit(site) / "startup"
            (startup / old).rename(startup / new)
            config = startup / "fed_client.json"
            config.write_text(config.read_text().replace(f'"{old}"', f'"{new}"'))
        federation.restart(*SITES)
        federation.wait_connected()

    rename("client.key", "of_nvflare_alone.key")
    for site in SITES:
        make_identity(federation.kit(site) / "local")
    yield federation
    for site in SITES:
        remove_policy(federation.kit(site) / "local")
        (federation.kit(site) / "local" / IDENTITY).unlink()
    rename("of_nvflare_alone.key", "client.key")


def test_where_jobs_read_no_key_of_the_kit_sites_add_up_with_those_whose_identities_they_pin(
    keyless, files, tmp_path, monkeypatch
):
    folder = keyless.run(job(watching.WatchingController, tmp_path / "unpinned", monkeypatch))
    assert (
        "that an identity alone has signed, and its policy pins none of that site"
        in (folder / "error_log.txt").read_text()
    )
    assert not (folder / "result.npz").exists()

    pins = {
        site: tuple(fingerprint(key.public_key()) for key in make_identity(keyless.kit(site) / "local"))
        for site in SITES
    }
    policy = Policy(secure_sums=True, secure_sites=SITES, secure_identities=pins)
    for site in SITES:
        write_policy(keyless.kit(site) / "local", policy)
    folder = keyless.run(job(watching.WatchingController, tmp_path / "pinned", monkeypatch))
    there, here = read(folder)[0], run_inprocess(get("lloyd"), {}, files, OPTIONS, policy=policy)
    np.testing.assert_array_equal(there.centroids, here.centroids)
    with np.load(folder / watching.WATCHED) as seen:
        name = next(
            name for name in seen.files if name.startswith(f"{UPDATE}/") and name.endswith(f"task/{KEYS_ARRAY}")
        )
        table = KeyTable.of({KEYS_ARRAY: seen[name]})
    assert table is not None
    assert all(key.identities and not key.certificate for key in table.keys.values())

    folder = keyless.run(job(watching.LyingController, tmp_path / "exchanged", monkeypatch))
    said = (
        "2 sites (north, west): each was sent a key for secure sums of 'south' that no identity has signed for this job"
    )
    assert said in (folder / "error_log.txt").read_text()
    assert not (folder / "result.npz").exists()
