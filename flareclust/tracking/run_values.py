"""What MLflow takes as names, texts and numbers of a run."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flareclust._foundation.errors import UserError

# MLflow's own limits, in characters. (Its client splits long lists into requests by itself.)
PARAM_LENGTH = 6000
TAG_LENGTH = 8000


def check_quotable(what: str, text: str) -> None:
    """Raise UserError unless a text can stand in a search of MLflow."""
    # MLflow's search expressions have no escapes.
    if not text or set(text) & set("'\"`\\"):
        raise UserError(f"expected a {what} without quotes and backslashes, got {text!r}")


def check_unchanged(old: Mapping[str, str], new: Mapping[str, str], run_key: str) -> None:
    """Raise UserError where a run that is taken up again has other params."""
    changed = [
        f"{key}: {old[key]!r} -> {new[key]!r}" for key in sorted(old.keys() & new.keys()) if old[key] != new[key]
    ]
    if changed:
        raise UserError(
            f"the run with key {run_key!r} was started with other params ({'; '.join(changed)}); "
            "restore them to resume it, or use another key for another federation"
        )


def check_files(files: Sequence[Path]) -> None:
    """Raise UserError where a file is missing or two have one name, the centroids' files counted."""
    counts = Counter(["centroids.npz", "centroids.csv", *(file.name for file in files)])
    if doubles := [name for name, count in counts.items() if count > 1]:
        raise UserError(
            f"expected one file of each name in a run, got several called {', '.join(doubles)}; rename them"
        )
    if missing := [str(file) for file in files if not file.is_file()]:
        raise UserError(f"no such file to log: {', '.join(missing)}")


def finite(prefix: str, values: Mapping[str, float | None]) -> Iterator[tuple[str, float]]:
    """Yield `<prefix>/<name>` and value of all that are finite numbers."""
    for key, value in values.items():
        if value is not None and math.isfinite(value):
            yield f"{prefix}/{key}", float(value)
