"""Folders that tests read."""

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

#: The folders of flareclust that are left out, as a variable of the environment says: tests that need them are skipped.
LEFT_OUT = os.environ.get("FLARECLUST_WITHOUT", "").split()

#: For tests of the checkout itself, which must have all of them.
of_the_whole = pytest.mark.skipif(bool(LEFT_OUT), reason=f"left out of flareclust: {', '.join(LEFT_OUT)}")
