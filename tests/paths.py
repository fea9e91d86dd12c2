"""Folders that tests read."""

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

#: The folders of flareclust that can be left out, and are; none in a whole checkout.
LEFT_OUT = [name for name in ("deep", "devices", "personal") if not (ROOT / "flareclust" / name).is_dir()]

#: For tests of the checkout itself, which must have all of them.
of_the_whole = pytest.mark.skipif(bool(LEFT_OUT), reason=f"left out of flareclust: {', '.join(LEFT_OUT)}")
