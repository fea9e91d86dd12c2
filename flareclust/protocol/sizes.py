"""Which sizes the arrays of a task fix for the arrays of its reply, by axis symbol."""

from collections.abc import Mapping
from math import prod

from flareclust._foundation.typing import Array
from flareclust.core.histograms import BINS
from flareclust.core.outcomes import OutcomeForm
from flareclust.protocol.task import ODD_KINDS, StepName

#: Name of the array of a task that says which form outcomes have (4,), see `OutcomeForm`.
ASKED_OUTCOME = "outcome_form"

#: Name of the array of a task that says how many second moments (t,) are asked for, of the components of a mixture.
MOMENTS = "moments"

_OUTCOMES = (StepName.OUTCOME_COUNTS, StepName.OUTCOME_SUMS)


def reply_sizes(step: str, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes that a site's reply must respect, as the server knows them.

    K, the number of centroids sent; t second moments about these; c candidate solutions with t centroids in all; p, the number of weights of a model that is trained, or of k models; c and f of a
    linear classifier's coefficients, f also of second moments.
    """
    if step in (StepName.SCALES, StepName.KNOWN_SCALES):
        return {"K": 1}
    if step == StepName.KNOWN_MOMENTS:
        return {"K": len(arrays["columns"]), "d": 1}
    if step in (StepName.BINNED, StepName.FINER_BINNED):
        return _bin_sizes(arrays)
    return _centroid_sizes(arrays) | _model_sizes(arrays) | _candidate_sizes(arrays)


def policy_sizes(step: str, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes that a site's policy holds a reply to, whatever arrays a server sent: K, k, and c candidate solutions with t centroids in all."""
    sizes = _centroid_sizes(arrays)
    if sizes and step in (
        StepName.ASSESS,
        StepName.OWN_CLUSTERS,
        StepName.PROFILE_BINS,
        StepName.PROFILE_KNOWN_BINS,
        *_OUTCOMES,
    ):
        sizes["k"] = sizes["K"]
    return sizes | _candidate_sizes(arrays)


def total_sizes(arrays: Mapping[str, Array], columns: int) -> dict[str, int]:
    """Return the sizes of totals over sites: K or k groups of d columns, t pairs of columns, g cells, c solutions that are
    compared, u oddities of columns, p weights, l leaves and h bins of a profile, o kinds and t times of outcomes.

    Args:
        arrays: of the task. With `columns` but without centroids it is about the columns, each a group of its own.
        columns: number of the sites' columns, where all have the same.
    """
    if sizes := _model_sizes(arrays) or _bin_sizes(arrays):
        return sizes
    if sizes := _candidate_sizes(arrays):
        return {**sizes, "d": columns}
    if "pooled_counts" in arrays:  # what is odd about columns
        return {"d": len(arrays["pooled_counts"]), "u": ODD_KINDS}
    if ASKED_OUTCOME in arrays:
        kinds, times = OutcomeForm.of(arrays[ASKED_OUTCOME]).shape
        return {"k": len(arrays["centroids"]), "o": kinds, "t": times}
    if "leaves" in arrays:  # counts in the bins of a profile
        d, edges = arrays["edges"].shape
        return {"l": len(arrays["leaves"]), "k": len(arrays["centroids"]), "d": d, "h": edges + 1}
    if "centroids" not in arrays:
        if "columns" in arrays:
            return {"K": len(arrays["columns"]), "d": 1}
        cells = prod(map(int, arrays["shape"])) if "shape" in arrays else 0
        return {"K": 1, "d": columns, "t": columns * (columns + 1) // 2, "g": cells}
    k, d = arrays["centroids"].shape
    return {**_centroid_sizes(arrays), "K": k, "k": k, "d": d}


def _centroid_sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    sizes = {"K": len(arrays["centroids"])} if "centroids" in arrays and arrays["centroids"].ndim else {}
    moments = arrays.get(MOMENTS)
    return sizes | (
        {"t": int(moments)} if moments is not None and moments.ndim == 0 and moments.dtype.kind == "i" else {}
    )


def _candidate_sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return how many solutions are scored and how many centroids these have together, of the number of each one's solution."""
    number = arrays.get("candidate")
    if number is None or number.ndim != 1 or not number.size or number.dtype.kind != "i":
        return {}
    return {"c": int(number[-1]) + 1, "t": len(number), "K": len(number)}


def _model_sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    if "prototypes" in arrays or "model" in arrays:  # the weights of a network or model that is trained
        sizes["p"] = len(arrays["weights"])
    if "models" in arrays:
        sizes["k"] = int(arrays["models"])
    if "features" in arrays:  # whose second moments are asked for
        sizes["f"] = int(arrays["features"])
    if "coefficients" in arrays:  # of a linear classifier
        sizes["c"], sizes["f"] = arrays["coefficients"].shape
    return sizes


def _bin_sizes(arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes of numbers of cells in bins."""
    return {"d": len(arrays["width"]), "b": BINS} if "width" in arrays else {}
