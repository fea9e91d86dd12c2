"""The digest of rows: what it distinguishes, and that large files are read in pieces."""

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.data.digest import digest_of
from flareclust.data.tables import Table


def test_values_shapes_and_words_count_and_the_kind_of_table_does_not():
    rows = np.arange(6.0).reshape(3, 2)
    assert digest_of("", [rows]) == digest_of("", [Table(rows)]) == digest_of("", [np.asfortranarray(rows)])
    others = [("", rows.T), ("", rows.reshape(2, 3)), ("", rows + 1e-15), ("word", rows)]
    assert len({digest_of("", [rows]), *(digest_of(about, [one]) for about, one in others)}) == 5


def test_files_below_a_folder_count_by_name_and_content(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    seen = [digest_of("", [tmp_path])]
    for name, content in [("x", b"1"), ("x", b"2"), ("y", b""), ("y", bytes(2**21)), ("y", bytes(2**21 + 1))]:
        (inner / name).write_bytes(content)
        seen.append(digest_of("", [tmp_path]))
    (inner / "x").rename(inner / "z")
    seen += [digest_of("", [tmp_path]), digest_of("", [inner / "z"])]
    assert len(set(seen)) == len(seen)
    assert digest_of("", [tmp_path]) == seen[-2]


def test_a_content_that_looks_like_a_name_is_another(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (one / "x").write_bytes(b"1y\x002")
    (two / "x").write_bytes(b"1")
    (two / "y").write_bytes(b"2")
    assert digest_of("", [one]) != digest_of("", [two])
    with pytest.raises(UserError, match="none: no such file or folder"):
        digest_of("", [tmp_path / "none"])


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "x").touch()

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(UserError, match=r"x cannot be read \(Permission denied\); its content is part"):
        digest_of("", [tmp_path])
