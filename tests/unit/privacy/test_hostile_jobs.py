"""Lies of a site in whole jobs: its replies to other rounds, and the result of the others."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust._foundation.typing import Message, never_abort
from flareclust.data.tables import Table
from flareclust.federation import run_federation
from flareclust.federation.aggregator import unpack
from flareclust.platform.controller import ClusteringController
from flareclust.preparation import alignment
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm, algorithms, get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.task import ROUND, STEP, StepName, Task
from flareclust.testing import iid_sites
from flareclust.testing.tools import exchanges
from tests.patience import PATIENCE

FEDERATED = [algorithm for algorithm in algorithms().values() if algorithm.federated]


def infinite(sent: Message) -> Message:
    return {name: array * np.inf if array.dtype == np.float64 else array for name, array in sent.items()}


def reply_of(**meta: object) -> Shareable:
    return DXO(DataKind.WEIGHTS, data={}, meta=meta).to_shareable()


# ---- rounds ----


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({STEP: "cluster", ROUND: 3}, "answered cluster of round 3 where update of round 5 was asked"),
        ({STEP: "update", ROUND: 4}, "answered update of round 4 where update of round 5 was asked"),
        ({STEP: "up\x1bdate" * 20, ROUND: 5}, "answered up?date"),
        ({STEP: ["update"], ROUND: 5}, "answered no step of any round"),
        ({}, "answered no step of any round where update of round 5 was asked"),
    ],
)
def test_a_reply_to_something_else_than_was_asked_is_refused(meta, words):
    arrays, problem = unpack(reply_of(**meta), ("update", 5))
    assert arrays == {}
    assert problem is not None
    assert problem.startswith(words)
    assert unpack(reply_of(step="update", round=5), ("update", 5))[1] is None


def test_a_reply_that_comes_after_its_task_had_ended_is_not_used(caplog):
    controller = ClusteringController("feca")
    late = reply_of(step="cluster", round=0)
    controller.process_result_of_unknown_task(Client("west", "token"), "cluster", "id", late, FLContext())
    assert "west answered 'cluster' too late" in caplog.text


def federation_with(algorithm: Algorithm, lie: Callable[[Message], Message] | None) -> Outcome:
    """Run a federation of five sites, of which site-3 lies, or of the other four."""
    sites, _ = iid_sites(m=5)
    names = [site for site in sites if lie is not None or site != "site-3"]
    executor, aggregator = algorithm.build(4, 0, {"rounds": 2} if "embeds" in algorithm.promises else {})

    def ask(step, round_, arrays, asked):
        replies = {}
        for site in asked:
            sent = executor.answer(Task(step, round_, dict(arrays), site), sites[site], never_abort).arrays
            replies[site] = SiteReply(sent if site != "site-3" or lie is None else lie(sent))
        return replies

    return run_federation(aggregator, ask, names)


def longer(sent: Message) -> Message:
    return {name: np.resize(array, (10**5, *array.shape[1:])) if array.ndim else array for name, array in sent.items()}


# ---- all algorithms ----


@pytest.mark.parametrize("algorithm", [a for a in FEDERATED if not a.executor_class().private], ids=lambda a: a.name)
def test_the_result_is_that_without_the_liar(algorithm):
    without = federation_with(algorithm, None)
    for lie in (longer, infinite) if not algorithm.partial else (longer,):  # a description may have no real number
        outcome = federation_with(algorithm, lie)
        assert list(outcome.refused) == ["site-3"]
        np.testing.assert_array_equal(outcome.centroids, without.centroids)


def test_nvflare_alone_decodes_what_the_sites_of_all_algorithms_send(tmp_path):
    """An object that NVFlare does not know would load here, where it was made, but in no other process."""
    nvflare_fobs_initialize()
    sites, _ = iid_sites(m=2)
    kinds = set()
    for algorithm in FEDERATED:
        for number, (task, arrays) in enumerate(exchanges(algorithm, sites, k=4, assess=True)):
            for name, array in arrays.items():
                assert type(array) is np.ndarray, f"{algorithm.name} sends {type(array)} as {name}"
                assert array.flags.c_contiguous
                kinds.add(array.dtype.str)
            sent = DXO(DataKind.WEIGHTS, data=arrays, meta={STEP: task.step, ROUND: task.round}).to_shareable()
            (tmp_path / f"{algorithm.name}-{number}.fobs").write_bytes(fobs.dumps(sent))
    assert kinds <= {"<f8", "<i8", "|b1"}
    code = (
        "import sys, pathlib\n"
        "from nvflare.apis.dxo import from_shareable\n"
        "from nvflare.app_common.decomposers import numpy_decomposers\n"
        "from nvflare.fuel.utils import fobs\n"
        "from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize\n"
        "nvflare_fobs_initialize()\n"
        "files = sorted(pathlib.Path(sys.argv[1]).glob('*.fobs'))\n"
        "print(len([from_shareable(fobs.loads(f.read_bytes())).data for f in files]), 'flareclust' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(list(tmp_path.glob("*.fobs")))), "False"]
    assert len(list(tmp_path.glob("*.fobs"))) > len(FEDERATED)


@pytest.mark.parametrize("name", ["dp-lloyd", "dp-oneshot", "dp-gmm"])
def test_a_site_with_impossible_bounds_is_named_and_the_others_go_on(name):
    step = StepName.CLUSTER if name == "dp-oneshot" else "bounds"
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(60, 2)) for i in range(4)}
    sent = {one.task.site: one.arrays for one in exchanges(get(name), sites, k=2) if one.task.step == step}
    sent["site-2"]["low"] = sent["site-2"]["high"]
    schema = get(name).executor_class().job_steps()[step].schema
    replies, problems, _ = accept(schema, {site: SiteReply(arrays) for site, arrays in sent.items()}, list(sent))
    assert list(problems) == ["site-2"]
    assert problems["site-2"].startswith(
        "sent a bad reply: low, high, radius: expected low below high for every column"
    )
    assert len(replies) == 3


def test_a_site_with_another_salt_than_most_is_named_and_two_that_differ_end_the_job():
    def described(salts):
        rows = np.random.default_rng(0).normal(size=(9, 1))
        tables = {site: Table(rows, columns=("crp",), salt=salt) for site, salt in salts.items()}
        answers = {site: SiteReply(alignment.describe(one, sums=False, min_count=2)) for site, one in tables.items()}
        return accept(alignment.DESCRIPTION, answers, list(answers))

    replies, problems, _ = described({"a": "one", "b": "two", "c": "one"})
    assert list(replies) == ["a", "c"]
    assert problems["b"].startswith("hashes the names of its columns with another salt than 2 other sites")
    replies, problems, _ = described({"a": "one", "b": "two"})
    assert (list(replies), problems) == (["a", "b"], {})
