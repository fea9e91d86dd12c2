"""Fixtures that unit tests of several folders share."""

import pytest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One MLflow store for the file: making one takes seconds, and every test has its own experiment or looks at new runs."""
    from flareclust.tracking.runs import Tracker

    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    Tracker(uri)
    return uri
