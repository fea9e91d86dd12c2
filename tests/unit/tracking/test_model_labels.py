"""The labels that the tracked model gives to rows."""

import ast
import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust.tracking import runs as tracking
from tests.examples import examples
from tests.unit.tracking.tracking_cases import CENTROIDS


def nearest(centroids):
    from flareclust.tracking.model import NearestCentroid

    buffer = io.BytesIO()
    np.save(buffer, centroids, allow_pickle=False)
    buffer.seek(0)
    model = NearestCentroid()
    model.load_context(SimpleNamespace(artifacts={"centroids": buffer}))
    return model


small_integers = st.integers(-2, 2).map(float)


@settings(max_examples=examples(50), deadline=None)
@given(arrays(float, (6, 2), elements=small_integers), arrays(float, (4, 2), elements=small_integers))
def test_label_is_the_first_of_the_nearest_centroids(X, centroids):
    expected = []
    for row in X:
        distances = [sum((x - c) ** 2 for x, c in zip(row, centroid, strict=True)) for centroid in centroids]
        expected.append(distances.index(min(distances)))
    labels = nearest(centroids).predict(None, X)
    assert labels.dtype == np.int64
    assert labels.tolist() == expected
    assert nearest(centroids).predict(None, pd.DataFrame(X)).tolist() == expected


def test_far_from_the_origin_the_nearest_centroid_is_still_found():
    centroids = np.array([[1e9, 0.0], [1e9 + 1, 0.0]])
    assert nearest(centroids).predict(None, np.array([[1e9 + 0.25, 0.0], [1e9 + 0.75, 0.0]])).tolist() == [0, 1]


def test_model_refuses_rows_it_cannot_place():
    model = nearest(CENTROIDS)
    with pytest.raises(ValueError, match=r"expected rows of 2 columns.*\(4, 3\)"):
        model.predict(None, np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"expected rows of 2 columns.*\(2,\)"):
        model.predict(None, np.zeros(2))
    with pytest.raises(ValueError, match="missing or infinite"):
        model.predict(None, pd.DataFrame({"a": [1.0, None], "b": [1.0, 1.0]}))


def test_model_file_imports_only_what_the_model_requires():
    tree = ast.parse(Path(tracking.__file__).with_name("model.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} == {"json", "mlflow", "numpy", "pandas", "pathlib", "typing"}
