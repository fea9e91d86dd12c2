"""What a site may send at worst, in this process: refused by its name in short plain words, and no memory for it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from nvflare.apis.dxo import DXO, DataKind

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust.engines.inprocess import answered
from flareclust.federation import run_federation
from flareclust.federation.aggregator import unpack
from flareclust.protocol.registry import get
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.schema import _LONGEST_TEXT, MOST_ROWS, Schema, counts, plain
from flareclust.protocol.task import REFUSED, StepName, Task
from flareclust.testing.tools import exchanges, iid_sites
from tests.examples import examples
from tests.memory import peak_of

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
        assert len(problem) <= _LONGEST_TEXT
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
    assert len(problem) <= _LONGEST_TEXT
    assert problem.isprintable()


# ---- texts ----


def test_texts_of_others_are_short_and_plain():
    assert plain("fewer rows than k=4") == "fewer rows than k=4"
    assert plain("über 5 Zeilen, 日本") == "über 5 Zeilen, 日本"
    nasty = "\x1b[2J\x1b]0;owned\x07\r\n\x00\x9b\u202e\u2028\ud800" + "x" * 2**20
    assert len(plain(nasty)) == _LONGEST_TEXT
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
    assert len(text) < 20 * (_LONGEST_TEXT + 50)


@pytest.mark.parametrize("name", ["masked", "proxy"])
@pytest.mark.parametrize("change", ["fewer columns", "more columns", "one axis"])
def test_a_server_that_sends_centroids_of_other_columns_is_refused(name, change):
    sites, _ = iid_sites(m=3, k=3)
    cut = {
        "fewer columns": lambda C: C[:, :-1],
        "more columns": lambda C: C[:, [0, 1, 2, 2]],
        "one axis": lambda C: C[0],
    }
    task = next(
        e.task
        for e in exchanges(get(name), sites, 3, assess=True)
        if "columns" in e.task.arrays and "centroids" in e.task.arrays
    )
    told = replace(task, arrays={**task.arrays, "centroids": cut[change](task.arrays["centroids"]).copy()})
    with pytest.raises(BadMessage, match="centroids: expected those of the federation's columns"):
        answered(get(name).build(3, 0, {})[0], told, sites[told.site], None)


@pytest.mark.parametrize(("name", "numbers"), [("kfed", "tau"), ("proxy", "group")])
@pytest.mark.parametrize("number", [-1, 3, 2**31, 2**62])
def test_a_server_that_numbers_clusters_that_are_not_there_is_refused_and_takes_no_memory(name, numbers, number):
    """Sites label their rows by these numbers, and count the rows of each label."""
    sites, _ = iid_sites(m=3, k=3)
    asked = [
        exchange.task for exchange in exchanges(get(name), sites, 3, assess=True) if numbers in exchange.task.arrays
    ]
    assert asked
    for task in asked:
        told = replace(task, arrays={**task.arrays, numbers: np.full_like(task.arrays[numbers], number)})
        executor, _ = get(name).build(3, 0, {})

        def answer(executor=executor, told=told):
            with pytest.raises(BadMessage, match=f"{numbers}: holds values"):
                answered(executor, told, sites[told.site], None)

        assert peak_of(answer) < 50_000_000


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_a_site_that_sends_its_columns_as_two_groups_is_left_out(missing):
    sites, _ = iid_sites(m=4, k=3)
    executor, aggregator = get("lloyd").build(3, 0, {"scale": "standard", "missing": missing})

    def ask(step, round_, arrays, asked):
        tasks = {site: Task(step, round_, dict(arrays), site) for site in asked}
        sent = {site: answered(executor, task, sites[site], None).arrays for site, task in tasks.items()}
        if step in (StepName.SCALES, StepName.KNOWN_SCALES):
            first = sent[asked[0]]
            sent[asked[0]] = {
                name: np.repeat(value, 2, axis=0) if np.ndim(value) else value for name, value in first.items()
            }
        return {site: SiteReply(arrays) for site, arrays in sent.items()}

    outcome = run_federation(aggregator, ask, list(sites))
    assert list(outcome.refused) == [next(iter(sites))]
    assert "axis k has 2 entries where there can be at most 1" in outcome.refused[next(iter(sites))]
