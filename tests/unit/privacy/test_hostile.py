"""What a site may send at worst, in this process: refused by its name in short plain words, and no memory for it."""

import subprocess
import sys
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import Message, never_abort
from flareclust.aggregators.base import unpack
from flareclust.data.tables import Table
from flareclust.features.alignment import DESCRIPTION, describe
from flareclust.federation import run_federation
from flareclust.flare.controller import ClusteringController
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm, algorithms, get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.schema import LONGEST_TEXT, MOST_ROWS, Schema, counts, plain
from flareclust.protocol.task import CLUSTER, REFUSED, ROUND, STEP, Task
from flareclust.testing import iid_sites
from flareclust.testing.tools import exchanges
from tests.examples import examples
from tests.memory import peak_of

FEDERATED = [algorithm for algorithm in algorithms().values() if algorithm.federated]

SCHEMA = Schema(centroids="k d", counts=counts("k"))
GOOD = {"centroids": np.ones((2, 3)), "counts": np.array([5, 7])}
LIMITS = {"k": 4, "d": 100}


def verdict(arrays: Mapping[object, object]) -> tuple[bool, str | None]:
    """Return whether an honest site's reply was used beside a lying one's, and the words about the latter."""
    answers = {"honest": SiteReply(GOOD), "lying site": SiteReply(dict(arrays))}  # type: ignore[arg-type]
    replies, problems, _ = accept(SCHEMA, answers, list(answers), limits=LIMITS)
    return "honest" in replies, problems.get("lying site")


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"counts": np.array([2**60, 1])}, "counts: holds values above"),
        ({"counts": np.array([2**46, 2**46])}, "or adds up to more"),
        ({"counts": np.array([-1, 1])}, "counts: holds values below 0"),
        ({"counts": np.array([2**63 - 1, 2**63 - 1])}, "counts: holds values above"),
        ({"counts": np.array([-(2**63), 1])}, "counts: holds values below 0"),
        ({"centroids": np.full((2, 3), 1e300)}, "holds values beyond 1e+140"),
        ({"centroids": np.array([[1.0, 2, 3], [4, np.nan, 5]])}, "NaN or infinite"),
        ({"centroids": np.array([[1.0, 2, 3], [4, -np.inf, 5]])}, "NaN or infinite"),
        (
            {"centroids": np.ones((5, 3)), "counts": np.ones(5, int)},
            "axis k has 5 entries where there can be at most 4",
        ),
        ({"centroids": np.ones((2, 101))}, "axis d has 101 entries where there can be at most 100"),
        ({"counts": np.array([1, 2, 3])}, "axis k has 3 entries where 2 were expected"),
        ({"centroids": np.asfortranarray(np.arange(6.0).reshape(2, 3))}, "contiguous by rows"),
        ({"centroids": np.ones((2, 3), ">f8")}, "expected float64, got >f8"),
        ({"centroids": np.array([[b"x"] * 3] * 2)}, "expected float64, got |S1"),
        ({"centroids": np.zeros((0, 3)), "counts": np.zeros(0, int)}, "empty reply"),
        ({"centroids": "\x1b[2J"}, "expected an array, got str"),
    ],
)
def test_a_lie_is_refused_in_words_without_values(lie, words):
    used, problem = verdict(GOOD | lie)
    assert used
    assert problem is not None
    assert words in problem
    assert problem.isprintable()


def test_subnormals_and_negative_zeros_are_numbers_like_others():
    """They slow nothing down that normal numbers do not: docs/adr/0012-intake.md has the figures."""
    odd = np.array([[5e-324, -5e-324, -0.0], [1e-310, 2.3e-308, 1e-140]])
    packed = SCHEMA.pack(GOOD | {"centroids": odd})
    assert packed["centroids"].tobytes() == odd.tobytes()
    assert verdict(packed) == (True, None)


ARRAYS = hnp.arrays(
    st.sampled_from(["float64", "int64", "bool", "float32", ">f8", "S3", "complex128", "M8[s]", "int8"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
)
VALUES = ARRAYS | st.text(max_size=5) | st.none() | st.integers() | st.lists(st.floats(), max_size=3)
NAMES = st.sampled_from(["centroids", "counts", "seconds", "rows"]) | st.text(max_size=500) | st.integers()


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_whatever_comes_only_its_sender_is_refused(arrays):
    used, problem = verdict(arrays)
    assert used
    if problem is not None:
        assert problem.isprintable()
        assert len(problem) <= LONGEST_TEXT
    else:
        SCHEMA.check({name: value for name, value in arrays.items() if name != "seconds"}, limits=LIMITS)


@settings(max_examples=examples(100), deadline=None)
@given(hnp.arrays("float64", (2, 3)), hnp.arrays("int64", 2))
def test_arrays_of_the_right_form_are_used_just_when_their_values_can_be(centroids, numbers):
    _, problem = verdict({"centroids": centroids, "counts": numbers})
    fits = np.isfinite(centroids).all() and np.abs(centroids).max() <= 1e140
    fits = fits and min(numbers) >= 0 and sum(map(int, numbers)) <= MOST_ROWS
    assert (problem is None) == bool(fits)


# ---- memory ----


@pytest.mark.parametrize("shape", [(2**20, 8), (2, 2**22)])
def test_far_too_long_arrays_are_refused_before_a_value_is_looked_at(shape):
    far = {"centroids": np.full(shape, np.nan), "counts": np.ones(shape[0], int)}
    assert peak_of(lambda: verdict(far)) < 100_000


def test_the_check_of_an_honest_reply_copies_nothing():
    large = {"centroids": np.ones((4, 10**6)), "counts": np.ones(4, int)}
    answers = {"a": SiteReply(large)}
    peak = peak_of(lambda: accept(SCHEMA, answers, ["a"], limits={"k": 4, "d": 10**6}))
    assert peak < 0.01 * large["centroids"].nbytes


def test_a_hundred_thousand_arrays_too_many_make_a_short_text():
    many = GOOD | {f"array-{i}-\x1b[2J{'x' * 100}": np.ones(1) for i in range(100_000)}
    used, problem = verdict(many)
    assert used
    assert problem is not None
    assert "and 99997 more" in problem
    assert len(problem) <= LONGEST_TEXT
    assert problem.isprintable()


# ---- texts ----


def test_texts_of_others_are_short_and_plain():
    assert plain("fewer rows than k=4") == "fewer rows than k=4"
    assert plain("über 5 Zeilen, 日本") == "über 5 Zeilen, 日本"
    nasty = "\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b\u202e\u2028\ud800" + "x" * 2**20
    assert len(plain(nasty)) == LONGEST_TEXT
    assert plain(nasty).isprintable()
    assert plain(["a"] * 10**6) == "(a list instead of a text)"


def test_a_refusal_of_a_megabyte_is_cut_before_it_is_copied():
    sent = DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: "\x1b[2J" + "x" * 2**20}).to_shareable()
    assert peak_of(lambda: unpack(sent)) < 100_000
    assert unpack(sent)[1] == "?[2J" + "x" * 396


def test_a_thousand_refusals_are_one_readable_message():
    _, aggregator = get("mavg").build(2)
    sites = [f"site-{i:04d}\x1b[2J" for i in range(1000)]

    def ask(step, round_, arrays, asked):
        return {site: SiteReply(problem=f"has {i} reasons\n" + "x" * 1000) for i, site in enumerate(asked)}

    with pytest.raises(JobFailed) as caught:
        run_federation(aggregator, ask, sites)
    text = str(caught.value)
    assert "site-0000?[2J has 0 reasons?x" in text
    assert text.endswith("and 980 more reasons")
    assert text.isprintable()
    assert len(text) < 20 * (LONGEST_TEXT + 50)


# ---- rounds ----


def reply_of(**meta: object) -> Shareable:
    return DXO(DataKind.WEIGHTS, data={}, meta=meta).to_shareable()


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


# ---- all algorithms ----


def federation_with(algorithm: Algorithm, lie: Callable[[Message], Message] | None) -> Outcome:
    """Run a federation of five sites, of which site-3 lies, or of the other four."""
    sites, _ = iid_sites(m=5)
    names = [site for site in sites if lie is not None or site != "site-3"]
    executor, aggregator = algorithm.build(4)

    def ask(step, round_, arrays, asked):
        replies = {}
        for site in asked:
            sent = executor.answer(Task(step, round_, dict(arrays), site), sites[site], never_abort).arrays
            replies[site] = SiteReply(sent if site != "site-3" or lie is None else lie(sent))
        return replies

    return run_federation(aggregator, ask, names)


def longer(sent: Message) -> Message:
    return {name: np.resize(array, (10**5, *array.shape[1:])) if array.ndim else array for name, array in sent.items()}


def infinite(sent: Message) -> Message:
    return {name: array * np.inf if array.dtype == np.float64 else array for name, array in sent.items()}


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(list(tmp_path.glob("*.fobs")))), "False"]
    assert len(list(tmp_path.glob("*.fobs"))) > len(FEDERATED)


@pytest.mark.parametrize("name", ["dp-lloyd", "dp-oneshot"])
def test_a_site_with_impossible_bounds_is_named_and_the_others_go_on(name):
    step = CLUSTER if name == "dp-oneshot" else "bounds"
    sites = {f"site-{i}": np.random.default_rng(i).normal(size=(60, 2)) for i in range(4)}
    sent = {one.task.site: one.arrays for one in exchanges(get(name), sites, k=2) if one.task.step == step}
    sent["site-2"]["low"] = sent["site-2"]["high"]
    schema = get(name).executor_class().step(step).schema
    replies, problems, _ = accept(schema, {site: SiteReply(arrays) for site, arrays in sent.items()}, list(sent))
    assert list(problems) == ["site-2"]
    assert problems["site-2"].startswith("sent a bad reply: low, high: expected low below high for every column")
    assert len(replies) == 3


def test_a_site_with_another_salt_than_most_is_named_and_two_that_differ_end_the_job():
    def described(salts):
        rows = np.random.default_rng(0).normal(size=(9, 1))
        tables = {site: Table(rows, columns=("crp",), salt=salt) for site, salt in salts.items()}
        answers = {site: SiteReply(describe(one, sums=False, min_count=2)) for site, one in tables.items()}
        return accept(DESCRIPTION, answers, list(answers))

    replies, problems, _ = described({"a": "one", "b": "two", "c": "one"})
    assert list(replies) == ["a", "c"]
    assert problems["b"].startswith("hashes the names of its columns with another salt than 2 other sites")
    replies, problems, _ = described({"a": "one", "b": "two"})
    assert (list(replies), problems) == (["a", "b"], {})
