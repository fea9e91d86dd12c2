"""The formats in which data sets are published."""

import gzip
import struct

import numpy as np
import pytest

from flareclust.data.published import _content_sha256, _idx_array, _partition_labels, _whole_numbers


def test_partition_files_give_labels_from_zero_below_the_line_of_dashes() -> None:
    assert _partition_labels(
        "VQ PARTITIONING 2.0\r\n3\r\n4\r\nDataGen - 1\r\n-----\r\n3\r\n1\r\n1\r\n2\r\n"
    ).tolist() == [2, 0, 0, 1]
    with pytest.raises(ValueError, match="no line of dashes"):
        _partition_labels("1\n2\n")
    with pytest.raises(ValueError, match="from 1"):
        _partition_labels("-----\n0\n1\n")


def test_text_tables_are_cut_into_columns() -> None:
    assert _whole_numbers("    1   22\n  333 4 \n", 2).tolist() == [[1, 22], [333, 4]]
    with pytest.raises(ValueError, match="reshape"):
        _whole_numbers("1 2 3", 2)


def test_idx_files_of_bytes_and_integers_are_read() -> None:
    images = struct.pack(">HBB3I", 0, 8, 3, 2, 1, 2) + bytes([1, 2, 3, 255])
    np.testing.assert_array_equal(
        np.array([[[1, 2]], [[3, 255]]], np.uint8), _idx_array(gzip.compress(images)), strict=True
    )
    labels = struct.pack(">HBB2I4i", 0, 12, 2, 2, 2, 5, -1, 70000, 0)
    np.testing.assert_array_equal(
        np.array([[5, -1], [70000, 0]], np.int32), _idx_array(gzip.compress(labels)), strict=True
    )
    for wrong in (b"", b"\0\0\x0d\x01\0\0\0\0", images[:-1]):
        with pytest.raises(ValueError, match=r"idx|reshape"):
            _idx_array(gzip.compress(wrong))


def test_the_content_hash_sees_rows_and_their_truth_but_not_their_order() -> None:
    rng = np.random.default_rng(0)
    X, centroids, y = rng.integers(0, 99, (20, 3)), rng.integers(0, 99, (4, 3)), rng.integers(0, 4, 20)
    expected = _content_sha256({"X": X, "y": y, "centroids": centroids})
    order, relabelled = rng.permutation(20), rng.permutation(4)
    other: dict[str, np.ndarray] = {
        "X": X[order].astype(np.int32),
        "y": relabelled[y][order].astype(np.uint8),
        "centroids": centroids[np.argsort(relabelled)].astype(float),
    }
    assert _content_sha256(other) == expected
    original: dict[str, np.ndarray] = {"X": X, "y": y % 3, "centroids": centroids}
    for key, array in original.items():
        changed = array.copy()
        changed.flat[0] += 1
        assert _content_sha256({**original, key: changed}) != _content_sha256(original)
