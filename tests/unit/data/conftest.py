"""A data folder without network."""

from pathlib import Path

import pooch
import pytest
from requests.exceptions import ConnectionError as NoNetwork

from flareclust.data import memory as rows_on_disk


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and nobody to fetch from."""

    def refuse(*args: object, **kwargs: object) -> str:
        raise NoNetwork("nobody there")

    monkeypatch.setenv("FLARECLUST_DATA", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", refuse)
    return tmp_path


@pytest.fixture
def small_pieces(monkeypatch):
    """A few rows at a time, so that small tables have many pieces."""
    monkeypatch.setattr(rows_on_disk, "PIECE", 200)
