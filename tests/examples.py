"""How many examples hypothesis tries: thirty at most, the same every time; in nightly runs as many as a test asks for."""

import os

from hypothesis import settings

#: The environment variable that `make nightly` sets to "all".
EXAMPLES = "FLARECLUST_EXAMPLES"

settings.register_profile("ci", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("nightly", deadline=None)
settings.load_profile("nightly" if os.environ.get(EXAMPLES) == "all" else "ci")


def examples(number: int) -> int:
    """Return the number of examples of a test that asks for `number`."""
    return number if os.environ.get(EXAMPLES) == "all" else min(number, 30)
