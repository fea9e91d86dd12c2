"""Masks of secure sums: they cancel in the total only, one message looks random, and keys are checked."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust._foundation.typing import Message, never_abort
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation.refinement import UPDATE
from flareclust.privacy.secure_aggregation import fixed_point
from flareclust.privacy.secure_aggregation.fixed_point import WORDS, Words
from flareclust.privacy.secure_aggregation.identity import SignedKey
from flareclust.privacy.secure_aggregation.masking import (
    KEYS_ARRAY,
    KeyTable,
    SiteMasks,
    _packed,
    key_of,
    stream,
    total,
)
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import StepName, Task
from flareclust.testing import iid_sites
from tests.unit.privacy.secure_cases import asker, lloyd_sites, run_lloyd


def table(masks: Sequence[SiteMasks]) -> KeyTable:
    return KeyTable({one.site: one.public for one in sorted(masks, key=lambda one: one.site)})


def three(w: int = 5) -> tuple[list[SiteMasks], KeyTable, Words]:
    masks = [SiteMasks(name) for name in ("north", "south", "west")]
    return masks, table(masks), fixed_point.encode(np.arange(w, dtype=np.float64))


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
    for value, reported in cases:
        with pytest.raises(BadMessage, match=reported):
            KeyTable.of({KEYS_ARRAY: _packed(value)})
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


def test_keys_with_a_step_that_is_no_sum_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    executor = LloydExecutor(k=2)
    _, everybody, _ = three()
    with pytest.raises(BadMessage, match="was sent keys with the step cluster, whose numbers do not add up"):
        executor.answer(Task("cluster", 0, everybody.sent(), "a"), rows, never_abort)


# NVFlare


def test_a_key_reply_can_be_read_again() -> None:
    executor = LloydExecutor(k=2)
    reported = executor.answer(
        Task(StepName.KEYS, 0, {}, "a"), np.random.default_rng(0).normal(size=(9, 7)), never_abort
    ).arrays
    assert int(reported["columns"]) == 7
    assert len(key_of(reported["key"]).key) == 32
