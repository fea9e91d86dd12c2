"""The model of a result as a scikit-learn pipeline (skops) or an ONNX graph: takes logarithms, fills gaps, scales, finds the nearest centroid."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.typing import Array, BoolArray, FloatArray
from flareclust.core import mixtures
from flareclust.core.mixtures import Mixture
from flareclust.data.cells import without_log
from flareclust.preparation import result as partial
from flareclust.preparation.assignment import REPRESENTATIVES, mixture_of
from flareclust.preparation.scaling import OPEN_GAPS, Scaling, as_clustered, of_directions, scaling_of
from flareclust.protocol.columns import FILL

if TYPE_CHECKING:
    from flareclust.experiment.results.result import Result

#: Of the graph's operators, and of its file; onnxruntime reads them since 1.18.
_OPSET, _IR = 18, 9


def export(result: "Result", file: Path) -> Path:
    """Write the model of a result to a new file, of the kind that its name ends in; see `Result.export`.

    Raises:
        UserError: another ending, the file is there or cannot be written, sites had different columns, or the extra is missing.
    """
    if file.suffix not in (".skops", ".onnx"):
        raise UserError(f"expected a file that ends in .skops or .onnx, got {file.name!r}")
    if partial.is_partial(result.arrays):
        raise UserError(
            f"{file.suffix} has no model for sites with different columns; use the model that MLflow keeps of a tracked run"
        )
    if OPEN_GAPS in result.arrays:
        raise UserError(
            f"{file.suffix} has no model for missing=partial, where gaps stay open; use the model that MLflow keeps of a tracked run, or "
            "take missing=mean"
        )
    if REPRESENTATIVES in result.arrays:
        raise UserError(
            f"{file.suffix} has no model for {result.algorithm}, whose rows belong to the cluster of the nearest representative; use the "
            "model that MLflow keeps of a tracked run, or predict of the result, which save keeps"
        )
    if file.exists():
        raise UserError(f"{file} is there already; choose another name")
    require("export", f"{file.suffix} export")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".skops":
            from skops.io import dump

            dump(_pipeline(result), file)
        else:
            file.write_bytes(_graph(result).SerializeToString())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
    return file


def _pipeline(result: "Result") -> Any:
    """Return a fitted scikit-learn pipeline whose `predict` gives the labels of `Result.predict`.

    Its last step is a Gaussian mixture where the result is one. Else it is a nearest-neighbour classifier of the centroids whose metric (seuclidean) adds up squared differences. KMeans
    expands squares, and so loses the distance between clusters that are close together and far from others. Equally near centroids
    go to the first in both. Rows without a direction, which have the label -1 there, get the label of some cluster here.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

    centroids = np.ascontiguousarray(as_clustered(result.arrays, result.centroids))
    k, d = centroids.shape
    steps: list[tuple[str, Any]] = []

    def named(rows: FloatArray) -> Any:
        """Return rows as the first step gets them; later ones get arrays."""
        return rows if steps else _named(result, rows)

    logarithms = _logarithms(result)
    if logarithms.any():
        parts = []
        for of_numbers, columns in groupby(range(d), logarithms.__getitem__):
            own = list(columns)
            parts.append((str(own[0]), FunctionTransformer(np.log1p) if of_numbers else "passthrough", own))
        steps.append(("log1p", ColumnTransformer(parts).fit(named(np.zeros((1, d))))))
    if FILL in result.arrays:
        # The mean of a single row is that row.
        steps.append(("fill", SimpleImputer().fit(named(result.arrays[FILL][None]))))
    if of_directions(result.arrays):
        steps.append(("length_one", Normalizer().fit(named(result.centroids))))
    else:
        scaling = scaling_of(result.arrays) or Scaling(np.zeros(d), np.ones(d))
        scaler = StandardScaler().fit(named(result.centroids))
        scaler.mean_, scaler.scale_, scaler.var_ = scaling.mean, scaling.deviation, np.square(scaling.deviation)
        steps.append(("scale", scaler))
    if (mixture := mixture_of({**result.arrays, "centroids": result.centroids})) is not None:
        return Pipeline([*steps, ("cluster", _sklearn_mixture(mixture))])
    nearest = KNeighborsClassifier(1, algorithm="brute", metric="seuclidean", metric_params={"V": np.ones(d)})
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # of as many classes as rows, which centroids are
        nearest.fit(centroids, np.arange(k))
    return Pipeline([*steps, ("cluster", nearest)])


def _sklearn_mixture(mixture: Mixture) -> Any:
    """Return scikit-learn's fitted mixture with these components."""
    from sklearn.mixture import GaussianMixture

    k, d = mixture.means.shape
    of_type = "diag" if mixture.factors.ndim == 2 else "full"
    found = GaussianMixture(k, covariance_type=of_type)
    found.weights_, found.means_, found.covariances_ = mixture.weights, mixture.means, mixture.covariances
    inverse = mixtures.inverses(mixture)
    found.precisions_cholesky_ = np.ascontiguousarray(inverse if inverse.ndim == 2 else inverse.transpose(0, 2, 1))
    found.converged_, found.n_features_in_ = True, d
    return found


def _graph(result: "Result") -> Any:
    """Return an ONNX model: `rows` (n, d), doubles, to `cluster` (n,) and `distance` (n,) to its centroid.

    Of a mixture these are the most probable component, and the Mahalanobis distance to it.
    """
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes: list[Any] = []
    constants: dict[str, Array] = {}

    def step(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(name: str, values: Array) -> str:
        constants[name] = values
        return name

    arrays, directions, scaling = result.arrays, of_directions(result.arrays), scaling_of(result.arrays)
    rows = "rows"
    last, middle = (constant(name, np.array([axis], dtype=np.int64)) for name, axis in (("last", -1), ("middle", 1)))
    if (logarithms := _logarithms(result)).any():
        # Of the other columns the logarithm of 1 is taken, and not used.
        numbers = step(
            "Where", [constant("logarithms", logarithms), rows, constant("nothing", np.array(0.0))], "numbers"
        )
        found = step("Log", [step("Add", [numbers, constant("and_one", np.array(1.0))], "more")], "log1p")
        rows = step("Where", ["logarithms", found, rows], "transformed")
    if FILL in arrays:
        rows = step("Where", [step("IsNaN", [rows], "missing"), constant("fill", arrays[FILL]), rows], "filled")
    if directions:
        squares = step("ReduceSum", [step("Mul", [rows, rows], "squares"), last], "square", keepdims=1)
        length = step("Sqrt", [squares], "length")
        none = step("Equal", [length, constant("zero", np.array(0.0))], "none")
        rows = step("Div", [rows, step("Where", [none, constant("one", np.array(1.0)), length], "divisor")], "unit")
    elif scaling is not None:
        moved = step("Sub", [rows, constant("mean", scaling.mean)], "moved")
        rows = step("Div", [moved, constant("deviation", scaling.deviation)], "scaled")
    centroids = constant("centroids", as_clustered(arrays, result.centroids)[None])
    # Explicit differences, as the expanded form loses small distances far from the origin.
    apart = step("Sub", [step("Unsqueeze", [rows, middle], "row"), centroids], "apart")
    mixture = mixture_of({**arrays, "centroids": result.centroids})
    if mixture is not None and mixture.factors.ndim == 2:
        apart = step("Mul", [apart, constant("inverses", mixtures.inverses(mixture)[None])], "whitened")
    elif mixture is not None:
        column = step("Unsqueeze", [apart, last], "column")
        whitened = step("MatMul", [constant("inverses", mixtures.inverses(mixture)[None]), column], "whitened_column")
        apart = step("Squeeze", [whitened, last], "whitened")
    squared = step("ReduceSum", [step("Mul", [apart, apart], "apart_squared"), last], "squared", keepdims=0)
    ranked = squared
    if (
        mixture is not None
    ):  # the least of what stands in place of a distance: of twice the negative logarithm of the density
        ranked = step("Sub", [squared, constant("log_scales", 2 * mixtures.log_scales(mixture)[None])], "ranked")
    labels = step("ArgMin", [ranked], "nearest" if directions else "cluster", axis=1, keepdims=0)
    if directions:
        at_origin = step("Squeeze", [none, last], "at_origin")
        step("Where", [at_origin, constant("no_cluster", np.array(-1, dtype=np.int64)), labels], "cluster")
    own = step("GatherElements", [squared, step("Unsqueeze", [labels, last], "place")], "own_squared", axis=1)
    step("Sqrt", [step("Squeeze", [own, last], "least")], "distance")

    outputs = [("cluster", TensorProto.INT64), ("distance", TensorProto.DOUBLE)]
    built = helper.make_graph(
        nodes,
        "nearest_centroid",
        [helper.make_tensor_value_info("rows", TensorProto.DOUBLE, ["n", result.centroids.shape[1]])],
        [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in outputs],
        [numpy_helper.from_array(np.ascontiguousarray(values), name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(built, opset_imports=opsets, ir_version=_IR, producer_name="flareclust")
    if result.columns is not None:
        helper.set_model_props(model, {"columns": "\n".join(_inputs(result))})
    checker.check_model(model)
    return model


def _logarithms(result: "Result") -> BoolArray:
    """Return of which columns (d,) the run's schema has taken logarithms (transform: log); a model takes the numbers."""
    d, names = result.centroids.shape[1], result.columns or ()
    return np.array([bool(result.schema) and without_log(name) is not None for name in names] or [False] * d)


def _inputs(result: "Result") -> list[str]:
    """Return the names of a model's inputs (d,)."""
    taken = zip(result.columns or (), _logarithms(result).tolist(), strict=True)
    return [(without_log(name) or name) if log else name for name, log in taken]


def _named(result: "Result", rows: FloatArray) -> Any:
    """Return rows (n, d) with the names of the columns, where they have any and pandas is installed."""
    if result.columns is None:
        return rows
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows, columns=_inputs(result))
