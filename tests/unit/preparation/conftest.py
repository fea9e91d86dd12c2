"""Files of sites with different columns."""

import pytest

from tests.unit.preparation.described_cases import frames


@pytest.fixture
def folder(tmp_path):
    """A folder with a csv file per site, one of which has a column of names beside the numbers."""
    data = tmp_path / "data"
    data.mkdir()
    for site, frame in frames().items():
        frame.to_csv(data / f"{site}.csv", index=False)
    return data
