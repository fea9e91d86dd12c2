"""Text for terminals: nothing that a terminal obeys, nothing without end."""

import pytest

from flareclust._foundation.display import LONGEST_VALUE, printable, shortened, shown
from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import check_int, did_you_mean


@pytest.mark.parametrize(
    ("text", "lines", "found"),
    [
        ("plain äöü 中", False, "plain äöü 中"),
        ("\x1b[2J\x07", False, r"\x1b[2J\x07"),
        ("\x9b31m", False, r"\x9b31m"),
        ("a\nb\tc", False, r"a\nb\tc"),
        ("a\nb\tc\r", True, "a\nb\tc\\r"),
        ("\u202eabc\ud800", False, r"\u202eabc\ud800"),
    ],
)
def test_control_characters_are_escaped(text, lines, found):
    assert printable(text, lines=lines) == found


def test_long_values_are_cut():
    assert shown("short") == "'short'"
    for value in ("x" * 10_000, list(range(10_000)), {"a": "x" * 10_000}, 10**4000):
        assert len(shown(value)) <= 3 * LONGEST_VALUE
    assert shown(10**5000) == "int with thousands of digits"
    with pytest.raises(UserError, match=r"^k must be an integer of at least 1, got 'xxx.{1,90}$"):
        check_int("k", "x" * 10_000, minimum=1)


def test_a_long_message_keeps_its_beginning_and_its_end():
    text = shortened("what is wrong " + "x" * 5000 + " what to do", 200)
    assert len(text) == 200
    assert text.startswith("what is wrong x")
    assert text.endswith("x what to do")


def test_no_hint_is_looked_for_among_very_many_names():
    assert did_you_mean("fecs", ["feca"]) == " (did you mean 'feca'?)"
    assert did_you_mean("c1", [f"c{j}x" for j in range(200_000)]) == ""
    assert did_you_mean("c" * 10_000, ["c" * 9_999]) == ""
