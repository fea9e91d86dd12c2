"""Secure sums: masks cancel, one message tells nothing, totals are exact, and what must not be added up is not."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flareclust
from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.core.splitting import split
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.job import build_job
from flareclust.engines.options import JobOptions
from flareclust.engines.simulator import run_simulator
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.lloyd import SPREAD, UPDATE, LloydExecutor
from flareclust.features.alignment import codes_of
from flareclust.federation import run_federation
from flareclust.privacy.context import SiteContext
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import FRACTION, RANGE, WORDS, Words
from flareclust.privacy.secure_aggregation.identity import SignedKey
from flareclust.privacy.secure_aggregation.masking import (
    KEYS_ARRAY,
    KeyTable,
    SiteMasks,
    key_of,
    key_reply,
    packed,
    stream,
    total,
)
from flareclust.privacy.secure_aggregation.server import ServerSums
from flareclust.privacy.secure_aggregation.totals import GROUPS, MOST_SITES, Layout
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import algorithms, get
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import ASSESS, DESCRIBE, KEYS, MOMENTS, SCORE, Task
from flareclust.testing import iid_sites
from flareclust.testing.partial_features import overlapping_sites
from tests.examples import examples

OPTIONS = JobOptions(k=4, seed=2, secure_sums=True)
PLAIN = JobOptions(k=4, seed=2)
FEWER = replace(OPTIONS, min_sites=3)
ONE = Fraction(1, 1 << FRACTION)

numbers = st.floats(-1e30, 1e30, allow_subnormal=True)


def fixed(x: float) -> int:
    """Return the whole multiple of 2^-128 nearest to x, of two as near ones the even one."""
    return round(Fraction(x) / ONE)


def table(masks: Sequence[SiteMasks]) -> KeyTable:
    return KeyTable({one.site: one.public for one in sorted(masks, key=lambda one: one.site)})


def three(w: int = 5) -> tuple[list[SiteMasks], KeyTable, Words]:
    masks = [SiteMasks(name) for name in ("north", "south", "west")]
    return masks, table(masks), fixed_point.encode(np.arange(w, dtype=np.float64))


Ask = Callable[[str, int, Message, Sequence[str]], dict[str, SiteReply]]


def asker(sites: Mapping[str, FloatArray], executors: Mapping[str, ClusteringExecutor]) -> Ask:
    """Ask executors that know nothing of one another, as processes at real sites do."""

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = {}
        for site in asked:
            try:
                answer = executors[site].answer(Task(step, round_, dict(arrays), site), sites[site], never_abort)
                replies[site] = SiteReply(answer.arrays)
            except (Refusal, BadMessage) as reason:
                replies[site] = SiteReply(problem=str(reason))
        return replies

    return ask


def lloyd_sites(sites: Mapping[str, FloatArray], k: int = 4) -> dict[str, ClusteringExecutor]:
    return {site: LloydExecutor(k=k, seed=2) for site in sites}


def run_lloyd(ask: Ask, sites: Mapping[str, FloatArray], **params: object) -> Outcome:
    return run_federation(LloydAggregator(4, seed=2, **params), ask, list(sites), secure_sums=True)  # type: ignore[arg-type]


# Fixed point


@given(st.lists(numbers, min_size=1, max_size=8))
def test_numbers_stand_as_the_nearest_multiple_of_the_resolution(values: list[float]) -> None:
    found = fixed_point.decode(fixed_point.encode(np.array(values)))
    assert found == [fixed(x) for x in values]


def test_numbers_of_ordinary_size_lose_nothing() -> None:
    values = np.array([0.1, -1e-20, 2.0**-76 * (1 + 2.0**-52), 1.7e37, -0.0, 1 / 3])
    np.testing.assert_array_equal(values, fixed_point.as_floats(fixed_point.decode(fixed_point.encode(values))))


@given(st.lists(st.integers(-(2**255), 2**255 - 1), min_size=2, max_size=6))
def test_adding_is_that_of_whole_numbers_modulo_2_to_256(values: list[int]) -> None:
    words = [
        np.frombuffer(v.to_bytes(32, "little", signed=True), dtype="<u8").astype(np.uint64).reshape(WORDS, 1)
        for v in values
    ]
    summed = words[0].copy()
    for other in words[1:]:
        fixed_point.add(summed, other)
    assert (fixed_point.decode(summed)[0] - sum(values)) % 2**256 == 0
    fixed_point.add(summed, fixed_point.negated(summed))
    assert not summed.any()


@given(st.floats(-1e60, 1e60), st.floats(-1e20, 1e20))
def test_products_are_exact_in_two_parts(a: float, b: float) -> None:
    if 0 < abs(a) < 1e-60 or 0 < abs(b) < 1e-60:
        return
    high, low = fixed_point.product(np.array([a]), np.array([b]))
    assert Fraction(float(high[0])) + Fraction(float(low[0])) == Fraction(a) * Fraction(b)


# Masks


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 6), st.integers(1, 40), st.integers(0, 2**32))
def test_masks_cancel_in_the_sum_over_all_sites(m: int, w: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    masks = [SiteMasks(f"site-{i}") for i in rng.permutation(m)]
    plain = [rng.integers(0, 2**64, size=(WORDS, w), dtype=np.uint64) for _ in masks]
    everybody = KeyTable.of(table(masks).sent())
    assert everybody is not None
    hidden = [
        one.hide(words, "update", 3, {"centroids": np.ones((2, 2))}, everybody)
        for one, words in zip(masks, plain, strict=True)
    ]
    assert total([words.view(np.int64) for words in hidden]) == total([words.view(np.int64) for words in plain])
    for words, open_ in zip(hidden, plain, strict=True):
        assert (words != open_).any()


def test_one_message_alone_looks_random_and_differs_from_job_to_job() -> None:
    seen = []
    for _ in range(2):
        masks, everybody, _ = three()
        words = masks[0].hide(np.zeros((WORDS, 4096), np.uint64), "assess", 1, {}, everybody)
        octets = np.bincount(words.view(np.uint8).ravel(), minlength=256)
        assert len(words.view(np.uint8).ravel()) == 131072
        chi_square = float((((octets - 512.0) ** 2) / 512.0).sum())
        assert 255 - 6 * 22.6 < chi_square < 255 + 6 * 22.6  # 255 degrees of freedom: six standard deviations
        seen.append(words)
    differing = np.bitwise_count(seen[0] ^ seen[1]).sum() if hasattr(np, "bitwise_count") else _bits(seen[0] ^ seen[1])
    assert abs(int(differing) - 2**19) < 6 * 512  # half of 2^20 bits, to six standard deviations


def _bits(words: Words) -> int:
    return int(np.unpackbits(words.view(np.uint8)).sum())


def test_two_of_three_messages_do_not_add_up_to_anything() -> None:
    masks, everybody, words = three()
    hidden = [one.hide(words, "update", 0, {}, everybody).view(np.int64) for one in masks]
    for i in range(3):
        left = total([own for j, own in enumerate(hidden) if j != i])
        assert min(abs(number) for number in left) > 2**200  # of random numbers, all but one in 2^54


def test_a_stream_belongs_to_one_question() -> None:
    secret = bytes(32)
    masks, everybody, words = three()
    answers = []
    for step, round_, arrays in (
        ("update", 0, {"centroids": np.zeros((1, 2))}),
        ("update", 1, {"centroids": np.zeros((1, 2))}),
        ("assess", 1, {"centroids": np.zeros((1, 2))}),
        ("assess", 2, {"centroids": np.ones((1, 2))}),
    ):
        answers.append(masks[0].hide(words, step, round_, arrays, everybody))
    for i, one in enumerate(answers):
        for other in answers[:i]:
            assert (one != other).all()
    assert (stream(secret, b"a", 3) != stream(secret, b"b", 3)).all()
    np.testing.assert_array_equal(stream(secret, b"a", 3)[:, 0], stream(secret, b"a", 3)[:, 0])


def test_a_site_that_was_asked_something_else_makes_the_total_unreadable() -> None:
    sites, _ = iid_sites()
    executors = lloyd_sites(sites)
    honest = asker(sites, executors)

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        if step != UPDATE:
            return honest(step, round_, arrays, asked)
        others = honest(step, round_, arrays, asked[1:])
        return others | honest(step, round_, arrays | {"centroids": arrays["centroids"] + 1e-9}, asked[:1])

    with pytest.raises(JobFailed, match=r"do not add up to sums over rows .*Which one cannot be seen"):
        run_lloyd(ask, sites)


# What a site does not do


def test_a_site_answers_a_question_once() -> None:
    masks, everybody, words = three()
    masks[0].hide(words, "update", 1, {}, everybody)
    with pytest.raises(Refusal, match="has answered the step update of round 1 before, and masks no sum twice"):
        masks[0].hide(words, "update", 1, {"centroids": np.zeros((1, 1))}, everybody)


def test_a_site_adds_up_with_the_same_sites_in_all_of_a_job() -> None:
    masks = [SiteMasks(name) for name in "abcd"]
    words = fixed_point.encode(np.ones(3))
    masks[0].hide(words, "update", 1, {}, table(masks))
    with pytest.raises(Refusal, match="over other sites than before; one job has one set of sites"):
        masks[0].hide(words, "update", 2, {}, table(masks[:3]))


def test_a_site_adds_up_with_two_others_at_least() -> None:
    masks, everybody, words = three()
    with pytest.raises(Refusal, match="with those of at least 2 other sites only"):
        masks[0].hide(words, "update", 1, {}, everybody.only(["north", "south"]))


def test_keys_that_are_not_those_of_different_sites_are_refused() -> None:
    masks, everybody, words = three()
    rows = [[site, key.key.hex(), "", "", 0] for site, key in everybody.keys.items()]
    double = [*rows, ["zeta", rows[0][1], "", "", 0]]
    cases: list[tuple[object, str]] = [
        (double, "holds one key more than once"),
        (rows[::-1], "names of different sites, sorted"),
        ([rows[0], rows[0], rows[1]], "names of different sites, sorted"),
        ([["north", "00", "", "", 0], *rows[1:]], "expected 32 bytes in hexadecimal"),
        ([["north", "zz" * 32, "", "", 0], *rows[1:]], "expected 32 bytes in hexadecimal"),
        *(([[*rows[0][:4], at], *rows[1:]], "a signature and its time") for at in ("now", 1.5, -1, 10**12, True, None)),
        ([rows[0][:4], *rows[1:]], "a signature and its time"),
        ([["north"], *rows[1:]], "expected 32 bytes in hexadecimal"),
        ([1, 2, 3], "expected a list of sites"),
        ({}, "expected a list of sites"),
    ]
    for value, told in cases:
        with pytest.raises(BadMessage, match=told):
            KeyTable.of({KEYS_ARRAY: packed(value)})
    for broken in (np.zeros(3), np.array([-1, 5]), np.zeros((2, 2), np.int64)):
        with pytest.raises(BadMessage, match="expected JSON text"):
            KeyTable.of({KEYS_ARRAY: broken})
    missing = everybody.only(["south", "west"])
    stranger = SiteMasks("a stranger")
    with pytest.raises(BadMessage, match="does not hold the key that this site's process has made"):
        masks[0].hide(words, "update", 1, {}, KeyTable({"a": stranger.public, **missing.keys}))
    swapped = KeyTable({**everybody.keys, "north": stranger.public})
    with pytest.raises(BadMessage, match="does not hold the key that this site's process has made"):
        masks[0].hide(words, "update", 1, {}, swapped)
    useless = KeyTable({**everybody.keys, "west": SignedKey(bytes(32))})
    with pytest.raises(BadMessage, match="that of west is no usable key"):
        masks[0].hide(words, "update", 1, {}, useless)


def test_a_table_that_was_refused_half_way_leaves_nothing_in_later_masks() -> None:
    masks, everybody, words = three()
    stranger = SiteMasks("a stranger")
    rest = {"south": everybody.keys["south"], "west": SignedKey(bytes(32))}
    bad = KeyTable({"a stranger": stranger.public, "north": everybody.keys["north"], **rest})
    with pytest.raises(BadMessage, match="that of west is no usable key"):
        masks[0].hide(words, "update", 1, {}, bad)
    hidden = [one.hide(words, "update", 1, {}, everybody).view(np.int64) for one in masks]
    assert total(hidden) == [3 * number for number in fixed_point.decode(words)]


def test_a_site_whose_process_was_started_anew_says_that_its_key_is_lost() -> None:
    sites, _ = iid_sites()
    executors = lloyd_sites(sites)
    honest = asker(sites, executors)

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        if step == UPDATE:
            executors["site-2"] = LloydExecutor(k=4, seed=2)
            return asker(sites, executors)(step, round_, arrays, asked)
        return honest(step, round_, arrays, asked)

    with pytest.raises(JobFailed, match="site-2 has no key for this job's secure sums: its process was started anew"):
        run_lloyd(ask, sites)


def test_once_a_site_has_given_its_key_its_sums_leave_masked_only() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    centroids = {"centroids": rows[:2].copy()}
    assert "centroids" in executor.answer(Task(UPDATE, 1, dict(centroids), "a"), rows, never_abort).arrays
    executor.answer(Task(KEYS, 0, {}, "a"), rows, never_abort)
    for step in (UPDATE, ASSESS):
        with pytest.raises(
            Refusal, match=f"part in a job with secure sums, and was asked for those of the step {step}"
        ):
            executor.answer(Task(step, 1, dict(centroids), "a"), rows, never_abort)
    with pytest.raises(Refusal, match="has given its key before"):
        executor.answer(Task(KEYS, 0, {}, "a"), rows, never_abort)


def test_what_is_asked_for_masked_only_is_never_told_otherwise() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(Refusal, match="lets out sums only masked, and was asked for those of the step spread without"):
        LloydExecutor(k=2).answer(Task(SPREAD, 0, {}, "a"), rows, never_abort)


def test_a_policy_can_ask_for_secure_sums() -> None:
    sites, _ = iid_sites()
    policy = Policy(min_count=2, secure_sums=True)
    with pytest.raises(Refusal, match="lets out sums only masked"):
        LloydExecutor(k=2).answer(
            Task(UPDATE, 1, {"centroids": sites["site-1"][:2].copy()}, "a"),
            sites["site-1"],
            never_abort,
            SiteContext(policy, "a job"),
        )
    with pytest.raises(JobFailed, match="sums"):
        run_inprocess(get("lloyd"), {}, sites, PLAIN, policy=policy)
    held = run_inprocess(get("lloyd"), {}, sites, OPTIONS, policy=policy)
    asked = run_inprocess(get("lloyd"), {}, sites, OPTIONS, policy=replace(policy, secure_sums=False))
    np.testing.assert_array_equal(asked.centroids, held.centroids)


def test_scores_that_no_mask_fits_do_not_leave_a_site_that_lets_out_sums_masked_only() -> None:
    sites, _ = iid_sites()
    params = {"k_min": 2}
    assert run_inprocess(get("pooled"), params, sites, PLAIN, policy=Policy()).arrays["chosen_k"] == 4
    for options in (PLAIN, OPTIONS):
        with pytest.raises(JobFailed, match=r"in the step score cannot be masked \(its policy: secure_sums\)"):
            run_inprocess(get("pooled"), params, sites, options, policy=Policy(secure_sums=True))
    with pytest.raises(JobFailed, match="asked for those of the step score without; submit with secure_sums"):
        run_inprocess(get("portfolio"), {}, sites, PLAIN, policy=Policy(secure_sums=True))
    held = run_inprocess(get("portfolio"), {}, sites, OPTIONS, policy=Policy(secure_sums=True))
    assert (held.refused, len(held.centroids)) == ({}, 4)


def test_sums_with_noise_leave_a_site_that_lets_out_sums_masked_only() -> None:
    sites, _ = iid_sites()
    dp = DifferentialPrivacy(bounds=(-100.0, 100.0), epsilon=10.0, delta=1e-6, budget=10.0)
    policy = Policy(secure_sums=True, dp=dp)
    secure = run_inprocess(get("dp-lloyd"), {"epsilon": 10.0, "delta": 1e-6}, sites, OPTIONS, policy=policy)
    assert (secure.refused, len(secure.centroids), "inertia" in secure.metrics) == ({}, 4, True)
    assert any("in the steps" in warning and "update" in warning for warning in secure.warnings)
    plain = run_inprocess(get("dp-lloyd"), {"epsilon": 10.0, "delta": 1e-6}, sites, PLAIN, policy=policy)
    assert (len(plain.centroids), plain.metrics) == (4, {})
    assert all("asked for those of the step assess without" in why for why in plain.refused.values())


def test_numbers_of_rows_that_a_policy_rounds_leave_variances_as_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(57, 3)) + 9
    held = LloydExecutor(k=2).under(Policy(min_count=5, round_counts=20))
    told = held.compute(Task(SPREAD, 0, {}, "a"), Table(rows), never_abort).arrays
    assert told["counts"].tolist() == [57]  # what leaves in the end is 60, and 60 times the variance
    np.testing.assert_allclose(told["m2"][0] / 60, rows.var(axis=0), rtol=1e-12)
    executor = get("masked").build(2, 0, {"standardize": True})[0].under(Policy(min_count=5, round_counts=20))
    told = executor.compute(Task(MOMENTS, 0, {"columns": codes_of(Table(rows))}, "a"), Table(rows), never_abort).arrays
    np.testing.assert_allclose(told["m2"][:, 0] / 60, rows.var(axis=0), rtol=1e-12)


def test_keys_with_a_step_that_is_no_sum_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    _, everybody, _ = three()
    with pytest.raises(BadMessage, match="was sent keys with the step cluster, whose numbers do not add up"):
        executor.answer(Task("cluster", 0, everybody.sent(), "a"), rows, never_abort)


@pytest.mark.parametrize(("scale", "told"), [(1e12, "values beyond 1e"), (1e-14, "too small for secure sums")], ids=str)
def test_a_site_whose_values_do_not_fit_is_left_out_by_name_before_it_gives_a_key(scale: float, told: str) -> None:
    sites, _ = iid_sites()
    outcome = run_inprocess(
        get("lloyd"), {}, {**sites, "odd": np.arange(40.0).reshape(20, 2)[:, [0, 1, 1]] * scale}, FEWER
    )
    assert list(outcome.refused) == ["odd"]
    assert told in outcome.refused["odd"]
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, sites, OPTIONS).centroids, outcome.centroids)


def test_a_key_does_not_tell_whether_a_value_is_large_where_numbers_are_differentially_private() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    rows[7, 1] = 1e30
    for name, keeps in (("dp-lloyd", False), ("dp-oneshot", False), ("lloyd", True)):
        executor = get(name).build(2)[0]
        if keeps:
            with pytest.raises(Refusal, match="values beyond 1e"):
                executor.answer(Task(KEYS, 0, {}, "a"), rows, never_abort)
        else:
            assert "key" in executor.answer(Task(KEYS, 0, {}, "a"), rows, never_abort).arrays


def test_totals_are_of_as_many_sites_as_they_have_room_for() -> None:
    key = SiteMasks("a").public
    replies = {f"site-{i:04d}": {"key": key_reply(key), "columns": np.array(2)} for i in range(MOST_SITES + 1)}
    sums = ServerSums(replies)
    sums.begin(sums.sites[:MOST_SITES])
    assert len(sums.sites) == MOST_SITES
    with pytest.raises(JobFailed, match="room for the totals of 1024 sites, and 1025 take part"):
        ServerSums(replies).begin(list(replies))


def test_as_many_sites_as_there_is_room_for_stay_in_range() -> None:
    """The largest numbers that a site lets through, in as many addends as the squares of a mean have, at all of them."""
    largest = np.nextafter(RANGE / 2**13, 0)
    one = fixed_point.encode(np.array([largest]))
    words = np.zeros_like(one)
    for _ in range(8 * MOST_SITES):
        fixed_point.add(words, one)
    assert fixed_point.decode(words) == [8 * MOST_SITES * fixed(largest)]


def test_a_server_that_sends_values_beyond_the_bound_gets_no_sum_more_in_the_job() -> None:
    """Sums about centroids at 1e16 are in range or not by how many rows there are: that was 12 questions to the number."""
    sites, _ = iid_sites()
    far = [[1e13 * (i + 1)] * 3 for i in range(4)]
    with pytest.raises(JobFailed, match=r"was sent values beyond 1e\+12 .* adds up nothing more"):
        run_inprocess(get("lloyd"), {"start": far}, sites, OPTIONS)
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    own = executor.answer(Task(KEYS, 0, {}, "a"), rows, never_abort).arrays
    keys = KeyTable({"a": key_of(own["key"]), "b": SiteMasks("b").public, "c": SiteMasks("c").public}).sent()
    for scale, words in ((1e16, "beyond 1e"), (1.0, "nothing more")):
        task = Task(UPDATE, 0, {"centroids": np.eye(2) * scale, **keys}, "a")
        with pytest.raises(Refusal, match=words):
            executor.answer(task, rows, never_abort)


def test_sums_that_do_not_fit_are_the_largest_that_do() -> None:
    """Where a server got past the bound by other means: no site refuses, as that would tell it about this site's rows."""
    schema = LloydExecutor.steps[UPDATE]
    layout = Layout(schema, {"K": 1, "d": 1})
    reply = {"centroids": np.array([[1e30]]), "counts": np.array([50]), "cluster": np.array([0])}
    words = layout.words({**reply, "inertia": np.array(1e60)})
    assert max(abs(number) for number in fixed_point.decode(words)) < fixed(RANGE / MOST_SITES)


# Totals


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.0, 1e4, 1e9])
)
def test_the_total_is_the_exact_one_rounded_once(seed: int, m: int, k: int, d: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout(GROUPS, {"K": k, "d": d})
    replies, summed = [], np.zeros((WORDS, layout.width), np.uint64)
    for _ in range(m):
        groups = np.flatnonzero(rng.random(k) < 0.7)
        reply = {
            "cluster": groups,
            "counts": rng.integers(1, 2**40, len(groups)),
            "centroids": rng.normal(size=(len(groups), d)) * 10.0 ** rng.integers(-3, 4) + offset,
            "m2": rng.exponential(size=(len(groups), d)),
        }
        replies.append(reply)
        fixed_point.add(summed, layout.words(reply))
    found = layout.reply(fixed_point.decode(summed))
    told = {r for reply in replies for r in reply["cluster"].tolist()}
    assert found["cluster"].tolist() == sorted(told)
    for at, r in enumerate(sorted(told)):
        own = [(reply, reply["cluster"].tolist().index(r)) for reply in replies if r in reply["cluster"]]
        n = sum(int(reply["counts"][i]) for reply, i in own)
        assert found["counts"][at] == n
        for j in range(d):
            mean = sum(int(reply["counts"][i]) * Fraction(float(reply["centroids"][i, j])) for reply, i in own) / n
            assert found["centroids"][at, j] == float(mean)
            around = sum(
                Fraction(float(reply["m2"][i, j]))
                + int(reply["counts"][i]) * (Fraction(float(reply["centroids"][i, j])) - mean) ** 2
                for reply, i in own
            )
            assert found["m2"][at, j] == pytest.approx(float(around), rel=1e-15)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 6), st.integers(1, 5), st.sampled_from([0.0, 1e6]))
def test_lloyd_from_the_same_start_is_the_plain_one_to_rounding(seed: int, m: int, k: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    sites = {f"site-{i}": rng.normal(size=(int(rng.integers(2, 60)), 2)) + offset for i in range(m)}
    params = {"start": (rng.normal(size=(k, 2)) + offset).tolist(), "rounds": 4, "tol": 0.0}
    plain = run_inprocess(get("lloyd"), params, sites, JobOptions(k=k, seed=seed))
    secure = run_inprocess(get("lloyd"), params, sites, JobOptions(k=k, seed=seed, secure_sums=True))
    for name, value in plain.arrays.items():
        rounding = 4 * np.spacing(1.0 + offset) if name in ("centroids", "history") else 0
        shared = secure.arrays[name][: len(value)]  # where nothing moves, one may see it a round later
        np.testing.assert_allclose(shared, value[: len(shared)], rtol=0, atol=rounding, err_msg=name)
    for site in sites:
        np.testing.assert_array_equal(secure.labels[site], plain.labels[site])
    for name, metric in plain.metrics.items():
        assert secure.metrics[name] == (None if metric is None else pytest.approx(metric, rel=1e-8))
    assert secure.refused == plain.refused


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-imputed"])
def test_standardisation_from_totals_is_the_plain_one(name: str) -> None:
    tables, _ = overlapping_sites()
    params = {} if name == "fkm-imputed" else {"standardize": True}
    plain = run_inprocess(get(name), params, tables, PLAIN)
    secure = run_inprocess(get(name), params, tables, OPTIONS)
    for array in ("mean", "deviation"):
        np.testing.assert_allclose(secure.arrays[array], plain.arrays[array], rtol=1e-14)
    np.testing.assert_array_equal(secure.arrays["column_masks"], plain.arrays["column_masks"])
    np.testing.assert_allclose(secure.centroids, plain.centroids, rtol=1e-9, atol=1e-12)
    assert [record["step"] for record in secure.rounds[:3]] == [KEYS, DESCRIBE, MOMENTS]
    assert secure.n_rounds == plain.n_rounds


def test_with_secure_sums_a_description_tells_no_sums() -> None:
    tables, _ = overlapping_sites()
    site, own = next(iter(tables.items()))
    executor = get("masked").build(4, 0, {"standardize": True})[0]
    assert len(executor.answer(Task(DESCRIBE, 0, {}, site), own, never_abort).arrays["mean"])
    executor.answer(Task(KEYS, 0, {}, site), own, never_abort)
    told = executor.answer(Task(DESCRIBE, 0, {}, site), own, never_abort).arrays
    assert len(told["mean"]) == len(told["m2"]) == 0


def test_the_portfolio_scores_and_polishes_with_totals() -> None:
    sites, _ = iid_sites()
    plain = run_inprocess(get("portfolio"), {"polish": 2}, sites, PLAIN)
    secure = run_inprocess(get("portfolio"), {"polish": 2}, sites, OPTIONS)
    np.testing.assert_allclose(secure.centroids, plain.centroids, rtol=1e-14)
    np.testing.assert_allclose(secure.arrays["candidate_inertia"], plain.arrays["candidate_inertia"], rtol=1e-14)
    assert ["in the steps cluster does not" in warning for warning in secure.warnings] == [True]


# A federation


def test_nothing_but_masked_words_reaches_the_server() -> None:
    sites, _ = iid_sites()
    seen: list[tuple[str, Message]] = []
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        seen.extend((step, reply.arrays) for reply in replies.values())
        return replies

    outcome = run_lloyd(ask, sites)
    assert (outcome.refused, outcome.warnings) == ({}, [])
    assert {step for step, _ in seen} == {KEYS, SPREAD, UPDATE, ASSESS}
    for step, arrays in seen:
        assert set(arrays) == ({"key", "columns", SECONDS} if step == KEYS else {"masked", SECONDS})
    words = [arrays["masked"].ravel() for step, arrays in seen if step != KEYS]
    assert len(np.unique(np.concatenate(words))) == sum(map(len, words))  # not one word is there twice


def test_one_executor_for_all_sites_and_one_for_each_give_the_same_bits() -> None:
    sites, _ = iid_sites()
    apart, together = (
        run_lloyd(asker(sites, lloyd_sites(sites)), sites),
        run_inprocess(get("lloyd"), {}, sites, OPTIONS),
    )
    assert set(apart.arrays) == set(together.arrays)
    for name, value in apart.arrays.items():
        np.testing.assert_array_equal(value, together.arrays[name], err_msg=name)
    assert apart.metrics == together.metrics


@pytest.mark.parametrize("lost", ["silent", "refuses"])
def test_a_site_that_drops_out_ends_the_job_by_name(lost: str) -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))
    asked_for: list[tuple[str, int]] = []

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        asked_for.append((step, round_))
        replies = honest(step, round_, arrays, asked)
        if step == UPDATE:
            replies.pop("site-3")
        return replies | ({"site-3": SiteReply(problem="says no")} if step == UPDATE and lost == "refuses" else {})

    told = "did not answer in time" if lost == "silent" else "says no"
    with pytest.raises(JobFailed, match=f"round 4: site-3 {told}. With secure sums a job ends where a site drops out"):
        run_lloyd(ask, sites)
    assert len(set(asked_for)) == len(asked_for)  # nobody was asked for a sum without it


def test_without_one_site_in_the_assessment_there_are_no_metrics_and_a_warning() -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        return {site: reply for site, reply in replies.items() if step != ASSESS or site != "site-3"}

    outcome = run_lloyd(ask, sites)
    assert outcome.metrics == {}
    why = "the masked sums of all sites are needed for them: site-3 did not answer in time (in the assessment)"
    assert outcome.warnings == [f"there are no metrics, since {why}"]
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, sites, OPTIONS).centroids, outcome.centroids)


def test_a_site_that_is_missing_from_the_start_is_left_out() -> None:
    sites, _ = iid_sites(m=5)
    tiny = sites | {"site-2": sites["site-2"][:1], "site-4": sites["site-4"][:, :2]}
    outcome = run_inprocess(get("lloyd"), {}, tiny, FEWER)
    assert "fewer rows than min_count=2" in outcome.refused["site-2"]
    assert outcome.refused["site-4"] == "has 2 columns where 3 other sites have 3"
    left = {site: sites[site] for site in ("site-1", "site-3", "site-5")}
    np.testing.assert_array_equal(run_inprocess(get("lloyd"), {}, left, OPTIONS).centroids, outcome.centroids)
    assert outcome.rounds[-1]["sites"] == list(left)
    few = {site: tiny[site] for site in ("site-1", "site-2", "site-3")}
    with pytest.raises(JobFailed, match="2 of 3 sites took part where at least 3 are needed"):
        run_inprocess(get("lloyd"), {}, few, OPTIONS)
    with pytest.raises(
        JobFailed, match=r"at least 5 sites \(min_sites; all sites unless it is given\), and 3 are left. site-2 has"
    ):
        run_inprocess(get("lloyd"), {}, tiny, OPTIONS)


def test_a_start_of_other_columns_leaves_out_whoever_lacks_them() -> None:
    sites, _ = iid_sites()
    with pytest.raises(JobFailed, match="has rows of 3 columns where the federation has 2"):
        run_inprocess(get("lloyd"), {"start": [[1, 2], [3, 4], [5, 6], [7, 8]]}, sites, OPTIONS)


def test_a_site_that_sends_no_key_is_left_out() -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        if step == KEYS:
            broken = {**replies["site-1"].arrays, "key": np.array([7])}
            replies["site-1"] = SiteReply(broken)
        return replies

    outcome = run_lloyd(ask, sites)
    assert outcome.refused == {"site-1": "sent a bad reply: expected JSON text, eight bytes to a number"}


def test_words_of_another_size_end_the_job_by_the_sites_name() -> None:
    sites, _ = iid_sites()
    honest = asker(sites, lloyd_sites(sites))

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = honest(step, round_, arrays, asked)
        if step == UPDATE:
            replies["site-1"] = SiteReply({"masked": np.zeros((WORDS, 10**6), np.int64)})
        return replies

    with pytest.raises(
        JobFailed, match="site-1 sent a bad reply: masked: axis w has 1000000 entries where 17 were expected"
    ):
        run_lloyd(ask, sites)


def test_two_sites_are_too_few() -> None:
    with pytest.raises(UserError, match="at least 3 sites, got 2: of two, each would know the other's sums"):
        flareclust.run("lloyd", data="iris", k=3, clients=2, secure_sums=True)


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("lloyd", {"robust": "median"}, "robust and cap judge single sites"),
        ("lloyd", {"cap": 2.0}, "robust and cap judge single sites"),
        ("portfolio", {"robust": "trimmed"}, "robust and cap judge single sites"),
        ("lloyd", {"start": "spectral"}, "start='spectral' clusters the sites' seeds, which are not sent"),
    ],
    ids=str,
)
def test_settings_that_need_single_sites_sums_are_refused(name: str, params: dict[str, object], told: str) -> None:
    sites, _ = iid_sites()
    with pytest.raises(UserError, match=told):
        run_inprocess(get(name), params, sites, OPTIONS)
    with pytest.raises(UserError, match=told):
        build_job(get(name), params, OPTIONS)


def test_what_is_not_masked_is_said() -> None:
    result = flareclust.run("kfed", data="iris", k=3, clients=3, secure_sums=True)
    assert any(
        "what they sent in the steps cluster does not, and reached the server as it is" in w for w in result.warnings
    )
    assert flareclust.run("lloyd", data="iris", k=3, clients=3, secure_sums=True).warnings == []


def test_server_and_sites_agree_on_what_adds_up() -> None:
    for algorithm in algorithms().values():
        if algorithm.federated:
            site, server = algorithm.executor_class(), algorithm.aggregator_class()
            assert site.summed == server.summed, algorithm.name
            assert dict(site.masked_only) == dict(server.masked_only), algorithm.name
    assert get("portfolio").executor_class().summed == {UPDATE, SCORE, ASSESS}


def test_jobs_with_secure_sums_have_the_tasks_and_others_do_not(tmp_path: object) -> None:
    def tasks(options: JobOptions) -> list[str]:
        build_job(get("lloyd"), {}, options).export_job(str(tmp_path))
        text = (tmp_path / "lloyd" / "app" / "config" / "config_fed_client.json").read_text()  # type: ignore[operator]
        found: list[str] = json.loads(text)["executors"][0]["tasks"]
        return found

    assert set(tasks(FEWER)) == {KEYS, SPREAD, UPDATE, ASSESS}
    assert not {KEYS, SPREAD} & set(tasks(PLAIN))


def test_a_job_that_was_asked_for_without_secure_sums_is_as_it_was() -> None:
    sites, _ = iid_sites()
    outcome = run_inprocess(get("lloyd"), {}, sites, PLAIN)
    assert KEYS not in [record["step"] for record in outcome.rounds]


# The start


def test_a_split_worked_by_hand() -> None:
    centroids, counts = np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([4, 9])
    found = split(centroids, counts, np.array([[16.0, 1.0], [3.0, 9.0]]), 1)
    assert found.tolist() == [[-2.0, 0.0], [10.0, 10.0], [2.0, 0.0]]
    twice = split(centroids, counts, np.array([[16.0, 1.0], [3.0, 9.0]]), 2)
    assert twice.tolist() == [[-2.0, 0.0], [10.0, 9.0], [2.0, 0.0], [10.0, 11.0]]
    assert centroids.tolist() == [[0.0, 0.0], [10.0, 10.0]]


def test_equal_rows_are_not_split() -> None:
    assert split(np.zeros((1, 2)), np.array([5]), np.zeros((1, 2)), 3).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("k", [1, 2, 16, 40])
def test_the_start_ends_and_has_k_centroids(k: int) -> None:
    rng = np.random.default_rng(k)
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(3)}
    outcome = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=k, secure_sums=True))
    assert len(outcome.centroids) == k
    starts = [record for record in outcome.rounds if record["step"] == SPREAD]
    assert 1 <= len(starts) <= 20


def test_a_few_rows_that_may_hardly_be_told_still_end() -> None:
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": rng.normal(size=(n, 2)) for i, n in enumerate((5, 5, 5, 2))}
    outcome = run_inprocess(get("lloyd"), {}, sites, JobOptions(k=6, secure_sums=True))
    assert not outcome.refused
    assert np.isfinite(outcome.centroids).all()
    assert len([record for record in outcome.rounds if record["step"] == SPREAD]) <= 6


@pytest.mark.parametrize("name", ["s3", "s4"])
def test_the_start_from_totals_ends_near_the_optimum(shared_data: object, name: str) -> None:
    result = flareclust.run("lloyd", data=name, clients=10, secure_sums=True)
    optimum = {"s3": 1.68893e13, "s4": 1.57031e13}[name]
    assert result.metrics["inertia"] == pytest.approx(optimum, rel=2e-3)


# NVFlare


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["lloyd", pytest.param("masked", marks=pytest.mark.nightly)])
def test_the_simulator_gives_the_same_bits(name: str, tmp_path: object) -> None:
    sites, params = (iid_sites(m=3)[0], {}) if name == "lloyd" else (overlapping_sites()[0], {"standardize": True})
    there = run_simulator(get(name), params, sites, OPTIONS, tmp_path)  # type: ignore[arg-type]
    here = run_inprocess(get(name), params, sites, OPTIONS)
    assert set(there.arrays) == set(here.arrays)
    for array, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], value, err_msg=array)
    assert there.metrics == here.metrics
    assert there.warnings == here.warnings
    assert [record["step"] for record in there.rounds] == [record["step"] for record in here.rounds]


def test_the_simulator_refuses_more_sites_than_it_has_processes_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flareclust.engines.simulator.threads_for", lambda m: 2)
    with pytest.raises(UserError, match="secure_sums needs a process of its own for each of the 4 sites"):
        run_simulator(get("lloyd"), {}, iid_sites()[0], OPTIONS, tmp_path)  # type: ignore[arg-type]


def test_a_key_reply_can_be_read_again() -> None:
    executor = LloydExecutor(k=2)
    told = executor.answer(Task(KEYS, 0, {}, "a"), np.random.default_rng(0).normal(size=(9, 7)), never_abort).arrays
    assert int(told["columns"]) == 7
    assert len(key_of(told["key"]).key) == 32
