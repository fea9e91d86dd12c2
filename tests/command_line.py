"""The command line, called in the test's own process."""

import pytest

from flareclust.cli.main import main


def call(*words: object) -> int:
    """Return the exit code of `flareclust WORDS`."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0)
