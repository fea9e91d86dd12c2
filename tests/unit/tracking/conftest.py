"""Fixtures that several test files of this folder share."""

import re

import pytest

from flareclust.tracking.runs import Tracker


@pytest.fixture
def tracker(store, request):
    return Tracker(store, experiment=re.sub(r"\W", "_", request.node.name))


@pytest.fixture
def client(store):
    from mlflow import MlflowClient

    return MlflowClient(store)
