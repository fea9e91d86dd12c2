"""Fixtures that several test files of this folder share."""

import pytest

from flareclust.tracking.runs import Tracker


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for the file: making one takes seconds, and every test has its own experiment."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    Tracker(uri)
    return uri


@pytest.fixture
def tracker(store, request):
    return Tracker(store, experiment=request.node.name)


@pytest.fixture
def client(store):
    from mlflow import MlflowClient

    return MlflowClient(store)
