"""Rows of sites of their own."""

import pytest

from tests.unit.experiment.api_cases import rows


@pytest.fixture
def own():
    return {f"site-{name}": rows(i) for i, name in enumerate("abcd")}
