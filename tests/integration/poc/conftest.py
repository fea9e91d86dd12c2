"""Fixtures that the tests of POCs share."""

import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An empty folder to call from, an empty home and an empty folder for temporary files."""
    folder = tmp_path_factory.mktemp("machine").resolve()
    for name in ("work", "home", "temporary"):
        (folder / name).mkdir()
    return folder
