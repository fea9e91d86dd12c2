"""What Maritan and Schenato print in Tables 1 to 5, and the set-ups that these are about.

Accuracies are percentages. The paper says "multiple" repetitions; ten are assumed where its means are compared with ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.base import Value

HAR, QMNIST, DIM = "HAR", "QMNIST", "DIM128"
DATA = (HAR, QMNIST, DIM)


@dataclass(frozen=True)
class SetUp:
    """A data set of the paper, assigned under one of its assumptions.

    Attributes:
        name: of the data in the tables.
        data: of the data set.
        assumption: "1" or "2".
        local: settings of both algorithms that these data need.
    """

    name: str
    data: str
    assumption: str
    local: Mapping[str, Any] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        """Return the partition: `har-a1`."""
        return f"{self.data.rstrip('0123456789')}-a{self.assumption}"

    @property
    def method(self) -> str:
        """Return the method of Algorithm 1 that is for this assumption."""
        return "A" if self.assumption == "1" else "B"

    @property
    def cell(self) -> Mapping[str, str]:
        """Return what a table's lines call it."""
        return {"data": self.name, "assumption": self.assumption}


def har(assumption: str) -> SetUp:
    """Return two activities of 30 subjects."""
    return SetUp(HAR, "har", assumption)


def qmnist(assumption: str) -> SetUp:
    """Return three digits at ten sites."""
    return SetUp(QMNIST, "qmnist", assumption)


def dim(d: int, assumption: str) -> SetUp:
    """Return the DIM set with d columns; its sites lack clusters, and find out how many they have."""
    return SetUp(f"DIM{d}", f"dim{d:03}", assumption, {"k_local": "silhouette"})


def set_ups(assumption: str) -> tuple[SetUp, ...]:
    """Return those of the tables."""
    return har(assumption), qmnist(assumption), dim(128, assumption)


#: Table 1 by data and assumption.
RATES: Mapping[tuple[str, str], Value] = {
    (HAR, "1"): Value(0.999, None, 3),
    (HAR, "2"): Value(0.999, None, 3),
    (QMNIST, "1"): Value(0.948, None, 3),
    (QMNIST, "2"): Value(0.976, None, 3),
    (DIM, "1"): Value(1.0, None, 3),
    (DIM, "2"): Value(1.0, None, 3),
}

_ONE = Value(1.0, 0.0, 1)

#: E1 and E4, the same in Tables 2 to 5, by algorithm, data and assumption.
AGGREGATION: Mapping[tuple[str, str, str], Value] = {
    (algorithm, data, assumption): _ONE
    for algorithm in ("masked", "proxy")
    for data in DATA
    for assumption in ("1", "2")
}
#: E2 (Tables 2 and 3) and E5 (Tables 4 and 5).
ACCURACY: Mapping[tuple[str, str, str], Value] = {
    ("masked", HAR, "1"): Value(99.87, 0.04, 2),
    ("masked", HAR, "2"): Value(99.94, 0.01, 2),
    ("masked", QMNIST, "1"): Value(92.16, 1.28, 2),
    ("masked", QMNIST, "2"): Value(94.59, 0.46, 2),
    ("masked", DIM, "1"): Value(100.0, 0.0, 2),
    ("masked", DIM, "2"): Value(100.0, 0.0, 2),
    ("proxy", HAR, "1"): Value(99.87, 0.04, 2),
    ("proxy", HAR, "2"): Value(99.94, 0.0, 2),
    ("proxy", QMNIST, "1"): Value(91.37, 1.35, 2),
    ("proxy", QMNIST, "2"): Value(94.36, 0.45, 2),
    ("proxy", DIM, "1"): Value(100.0, 0.0, 2),
    ("proxy", DIM, "2"): Value(100.0, 0.0, 2),
    ("central", HAR, "1"): Value(99.91, None, 2),
    ("central", HAR, "2"): Value(99.90, None, 2),
    ("central", QMNIST, "1"): Value(93.99, None, 2),
    ("central", QMNIST, "2"): Value(96.66, None, 2),
    ("central", DIM, "1"): Value(100.0, None, 0),
    ("central", DIM, "2"): Value(100.0, None, 0),
}
#: E3, cosine similarity.
COSINE: Mapping[tuple[str, str, str], Value] = {
    ("masked", HAR, "1"): Value(1.0, 0.0, 3),
    ("masked", HAR, "2"): Value(1.0, 0.0, 3),
    ("masked", QMNIST, "1"): Value(0.998, 0.001, 3),
    ("masked", QMNIST, "2"): Value(0.998, 0.001, 3),
    ("masked", DIM, "1"): _ONE,
    ("masked", DIM, "2"): _ONE,
    ("proxy", HAR, "1"): _ONE,
    ("proxy", HAR, "2"): _ONE,
    ("proxy", QMNIST, "1"): Value(0.998, 0.002, 3),
    ("proxy", QMNIST, "2"): Value(0.998, 0.001, 3),
    ("proxy", DIM, "1"): _ONE,
    ("proxy", DIM, "2"): _ONE,
}
#: E3, relative distance.
DISTANCE: Mapping[tuple[str, str, str], Value] = {
    ("masked", HAR, "1"): Value(0.005, 0.001, 3),
    ("masked", HAR, "2"): Value(0.002, 0.001, 3),
    ("masked", QMNIST, "1"): Value(0.058, 0.021, 3),
    ("masked", QMNIST, "2"): Value(0.059, 0.009, 3),
    ("masked", DIM, "1"): Value(0.0, 0.0, 1),
    ("masked", DIM, "2"): Value(0.0, 0.0, 1),
    ("proxy", HAR, "1"): Value(0.005, 0.001, 3),
    ("proxy", HAR, "2"): Value(0.002, 0.001, 3),
    ("proxy", QMNIST, "1"): Value(0.066, 0.024, 3),
    ("proxy", QMNIST, "2"): Value(0.062, 0.011, 3),
    ("proxy", DIM, "1"): Value(0.0, 0.0, 1),
    ("proxy", DIM, "2"): Value(0.0, 0.0, 1),
}
