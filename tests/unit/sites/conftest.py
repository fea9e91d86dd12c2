"""Fixtures that several test files of this folder share."""

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def rows(tmp_path, state) -> Path:
    """A file with rows, outside of every kit."""
    file = tmp_path / "secure" / "rows.npy"
    file.parent.mkdir()
    np.save(file, np.random.default_rng(0).normal(size=(30, 2)))
    return file


@pytest.fixture
def local(tmp_path):
    """The folder `local` of a site, inside one whose name nobody else may learn."""
    folder = tmp_path / "clinic-of-dr-x" / "local"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def kit(tmp_path):
    """A site's kit as provisioning makes it, and a file with its rows."""
    folder = tmp_path / "prod_00" / "north"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    (folder / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": ["hospital.Own"]}))
    return folder
