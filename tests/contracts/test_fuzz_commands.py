"""Generated commands: a few of each kind here, 1,500 with `make nightly` (docs/fuzzing.md)."""

import os
from collections import Counter

import numpy as np
import pytest

from flareclust.data.memory import LIMIT
from tests.fuzz.commands import KINDS, SUCCEEDING, check, prepare

FEW, MANY = 16, 250


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    before = os.getcwd(), os.environ.get(LIMIT)
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder)
    yield folder
    os.chdir(before[0])
    if before[1] is None:
        os.environ.pop(LIMIT, None)
    else:
        os.environ[LIMIT] = before[1]


def codes(kind, cases, folder):
    """Return how many of these commands ended with each exit code."""
    return Counter(check(kind, np.random.default_rng(case).bytes(200), folder) for case in cases)


@pytest.mark.parametrize("kind", KINDS)
def test_commands_with_odd_input_end_as_promised(kind, folder):
    found = codes(kind, range(FEW), folder)
    assert found[2], "none of them was wrong, so this shows nothing"
    assert found[0] or kind not in SUCCEEDING, "none of them was right, so this shows no more than refusals"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_commands_with_odd_input_end_as_promised(kind, folder):
    found = codes(kind, range(MANY), folder)
    print(kind, dict(found))
    assert found.total() == MANY
    assert found[0] or kind not in SUCCEEDING, "none of them was right, so this shows no more than refusals"
