"""What FeCA's paper prints: Tables 1 and 4 to 10 (l2 in units of 1e4, MSE in units of 1e6), and Table 2 for CIFAR.

Methods have the names of `benchmarks.papers.feca_methods`.
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers.base import Value

#: Unit of l2 in the tables, and the measures that need labels.
SCALE = 1e4
MEASURES = ("purity", "nmi")
SPLITS = ("iid", "dirichlet:0.3", "dirichlet:0.1")
SETS = ("s1", "s2", "s3", "s4")


def _values(text: str, digits: int) -> list[Value]:
    """Return the values in "7.2+4.3 45.8+5.0" or "0.99 0.79"."""
    pairs = (word.split("+") for word in text.split())
    return [Value(float(pair[0]), float(pair[1]) if len(pair) == 2 else None, digits) for pair in pairs]


def _by_set(rows: Mapping[str, Sequence[str]], digits: int) -> dict[tuple[str, str, str], Value]:
    """Return values by (method, data, split) from one text per data set."""
    return {
        (method, data, split): value
        for method, texts in rows.items()
        for data, text in zip(SETS, texts, strict=True)
        for split, value in zip(SPLITS, _values(text, digits), strict=True)
    }


#: Table 1, by (method, data, split).
L2 = _by_set(
    {
        "mavg": ("7.2+4.3 45.8+5.0 63.0+2.8", "14.7+7.1 51.4+8.9 64.0+11.1", "16.4+6.8 35.5+5.7 46.7+5.3", "14.2+3.7 28.7+3.3 40.1+6.4"),
        "ffcm-v1-r1": ("12.2+15.8 80.7+13.3 81.1+15.7", "16.7+20.4 70.9+13.3 89.7+16.0", "16.6+15.2 58.1+11.9 77.4+8.9", "11.4+9.5 45.0+8.9 63.1+10.8"),
        "ffcm-v1-r10": ("3.3+1.4 50.3+8.8 66.1+12.4", "9.6+19.1 56.9+12.3 60.3+18.2", "11.4+15.5 45.9+8.8 66.6+12.9", "4.8+1.3 45.0+12.3 52.0+11.9"),
        "ffcm-v2-r1": ("23.1+19.4 75.7+16.8 77.0+14.4", "16.1+16.9 71.9+13.5 79.9+12.6", "18.2+12.6 62.7+12.6 79.1+10.2", "13.0+11.4 48.9+9.7 60.4+9.6"),
        "ffcm-v2-r10": ("2.6+0.4 42.9+14.8 54.2+14.6", "32.9+0.5 58.1+13.5 59.4+25.8", "4.5+0.7 49.4+19.3 56.7+16.7", "4.9+0.6 44.6+9.1 49.9+7.3"),
        "kfed-k5": ("84.6+15.8 59.4+12.3 59.8+16.9", "75.9+17.7 64.1+13.1 63.9+11.6", "73.1+14.3 65.6+15.2 68.8+12.8", "52.7+10.8 43.4+6.3 47.5+8.6"),
        "feca": ("1.0+0.1 6.8+3.7 22.3+15.6", "1.9+0.1 13.6+16.1 38.8+3.4", "3.6+0.7 23.6+8.8 33.2+6.7", "4.7+0.7 24.5+7.2 31.5+5.8"),
    },
    digits=1,
)  # fmt: skip

#: Table 1, last line, by data: one figure for all splits.
L2_CENTRAL = dict(zip(SETS, _values("14.3+18.7 8.4+14.7 25.4+19.1 20.1+10.0", 1), strict=True))

#: Table 4, by (method, data, split).
PURITY = _by_set(
    {
        "mavg": ("0.99 0.79 0.69", "0.93 0.74 0.68", "0.80 0.66 0.61", "0.75 0.64 0.57"),
        "ffcm-v1-r1": ("0.97 0.69 0.66", "0.95 0.68 0.58", "0.83 0.60 0.54", "0.79 0.60 0.53"),
        "ffcm-v1-r10": ("0.98 0.78 0.68", "0.96 0.74 0.71", "0.85 0.66 0.57", "0.80 0.61 0.55"),
        "ffcm-v2-r1": ("0.95 0.69 0.66", "0.95 0.63 0.61", "0.83 0.58 0.52", "0.78 0.57 0.54"),
        "ffcm-v2-r10": ("0.99 0.80 0.76", "0.97 0.70 0.72", "0.86 0.65 0.61", "0.80 0.60 0.59"),
        "kfed-k5": ("0.62 0.76 0.75", "0.60 0.71 0.71", "0.55 0.61 0.60", "0.55 0.62 0.58"),
        "feca": ("0.99 0.98 0.96", "0.97 0.95 0.90", "0.86 0.80 0.78", "0.80 0.73 0.65"),
    },
    digits=2,
)
NMI = _by_set(
    {
        "mavg": ("0.98 0.85 0.79", "0.92 0.80 0.78", "0.77 0.71 0.69", "0.70 0.65 0.62"),
        "ffcm-v1-r1": ("0.98 0.80 0.78", "0.93 0.77 0.71", "0.78 0.67 0.64", "0.72 0.63 0.60"),
        "ffcm-v1-r10": ("0.98 0.85 0.80", "0.94 0.80 0.78", "0.79 0.71 0.66", "0.72 0.64 0.61"),
        "ffcm-v2-r1": ("0.97 0.80 0.78", "0.93 0.75 0.72", "0.78 0.67 0.63", "0.71 0.62 0.60"),
        "ffcm-v2-r10": ("0.99 0.87 0.85", "0.95 0.78 0.79", "0.79 0.70 0.68", "0.72 0.63 0.63"),
        "kfed-k5": ("0.80 0.84 0.83", "0.75 0.80 0.80", "0.66 0.69 0.68", "0.62 0.65 0.63"),
        "feca": ("0.99 0.96 0.95", "0.95 0.94 0.90", "0.80 0.77 0.75", "0.72 0.69 0.66"),
    },
    digits=2,
)
PURITY_CENTRAL = dict(zip(SETS, _values("0.97 0.96 0.83 0.77", 2), strict=True))
NMI_CENTRAL = dict(zip(SETS, _values("0.98 0.94 0.79 0.71", 2), strict=True))

#: Table 5: MSE on S1, iid, by whether one-fit-many centroids are removed.
ABLATION = {"not removing": Value(12977.2), "removing": Value(6.7)}

#: Table 6: l2 on S1 by way to assign radii.
RADII = {
    "theoretical": dict(zip(SPLITS, _values("1.1+0.1 31.8+23.8 58.9+15.1", 1), strict=True)),
    "empirical": dict(zip(SPLITS, _values("1.0+0.1 6.8+3.7 22.3+15.6", 1), strict=True)),
}

#: Table 7: k-FED on S1, dirichlet:0.3, by k' = 2 ... 15.
K_LOCAL = tuple(range(2, 16))
K_LOCAL_L2 = _values(
    "63.3+7.0 65.9+11.9 60.8+16.8 58.1+10.7 60.3+15.0 59.4+11.1 62.5+11.0 "
    "77.3+11.2 69.4+13.8 77.7+15.2 76.4+10.7 72.1+16.1 69.8+15.7 67.4+9.5",
    1,
)
K_LOCAL_PURITY = _values("0.71 0.72 0.79 0.79 0.78 0.79 0.76 0.72 0.74 0.71 0.72 0.74 0.75 0.78", 2)
K_LOCAL_NMI = _values("0.83 0.83 0.89 0.88 0.87 0.88 0.87 0.83 0.84 0.83 0.85 0.85 0.86 0.85", 2)

#: Tables 8 and 9: l2 on S1 by the number of clients M = 1 ... 20; Purity and NMI are .99 from M = 2 on.
CLIENTS = tuple(range(1, 21))
SHARE_5_L2 = _values(
    "10.7+14.3 3.1+0.6 2.6+0.4 2.1+0.3 2.0+0.3 1.7+0.3 1.8+0.2 1.6+0.4 1.4+0.2 1.4+0.3 "
    "1.3+0.2 1.4+0.3 1.3+0.2 1.4+0.2 1.2+0.2 1.2+0.1 1.1+0.1 1.1+0.1 1.0+0.1 1.0+0.1",
    1,
)
SHARE_M_L2 = _values(
    "14.3+18.7 1.1+0.3 1.2+0.3 1.1+0.2 1.1+0.2 1.2+0.2 1.1+0.1 1.1+0.1 1.0+0.1 1.0+0.1 "
    "1.1+0.1 1.1+0.1 1.1+0.2 1.1+0.1 1.1+0.1 1.0+0.2 1.1+0.2 1.1+0.1 1.1+0.1 1.1+0.1",
    1,
)
SHARE_5_ONE = (Value(0.98, None, 2), Value(0.98, None, 2))  # Purity and NMI for M = 1
SHARE_M_ONE = (Value(0.97, None, 2), Value(0.98, None, 2))
FROM_TWO = (Value(0.99, None, 2), Value(0.99, None, 2))

#: Table 10: MSE on S1, by (k, k').
VARYING_K = {
    (15, 10): dict(zip(SPLITS, _values("34599.4 21055.7 19311.6", 1), strict=True)),
    (15, 20): dict(zip(SPLITS, _values("9.9 5960.4 8738.6", 1), strict=True)),
    (10, 15): dict(zip(SPLITS, _values("8.4 551.2 7532.7", 1), strict=True)),
    (15, 15): dict(zip(SPLITS, _values("6.7 308.3 3315.3", 1), strict=True)),
}

#: Table 2, (Purity, NMI) on ResNet-50 features by number of classes, method and split; three runs.
FEATURE_SPLITS = ("iid", "dirichlet:1", "dirichlet:0.3", "dirichlet:0.1")
_CIFAR: Mapping[int, Mapping[str, tuple[str, str]]] = {
    10: {
        "mavg": ("0.48 0.45 0.41 0.39", "0.43 0.41 0.35 0.34"),
        "ffcm-v1-r1": ("0.24 0.32 0.37 0.36", "0.33 0.37 0.38 0.36"),
        "ffcm-v1-r10": ("0.20 0.20 0.23 0.24", "0.31 0.31 0.32 0.31"),
        "ffcm-v2-r1": ("0.32 0.44 0.53 0.56", "0.27 0.43 0.48 0.50"),
        "ffcm-v2-r10": ("0.32 0.43 0.53 0.56", "0.27 0.43 0.48 0.50"),
        "kfed-k3": ("0.28 0.41 0.47 0.51", "0.30 0.39 0.47 0.52"),
        "feca": ("0.61 0.60 0.58 0.57", "0.53 0.51 0.49 0.50"),
        "central": ("0.64 0.64 0.64 0.64", "0.53 0.53 0.53 0.53"),
    },
    100: {
        "mavg": ("0.20 0.19 0.19 0.18", "0.37 0.37 0.36 0.36"),
        "ffcm-v1-r1": ("0.06 0.07 0.07 0.07", "0.24 0.25 0.24 0.25"),
        "ffcm-v1-r10": ("0.03 0.03 0.04 0.03", "0.13 0.13 0.15 0.14"),
        "ffcm-v2-r1": ("0.10 0.11 0.11 0.12", "0.27 0.30 0.30 0.32"),
        "ffcm-v2-r10": ("0.10 0.10 0.10 0.12", "0.26 0.28 0.29 0.31"),
        "kfed-k10": ("0.10 0.22 0.34 0.48", "0.27 0.37 0.49 0.62"),
        "feca": ("0.37 0.37 0.37 0.34", "0.49 0.49 0.49 0.47"),
        "central": ("0.39 0.39 0.39 0.39", "0.50 0.50 0.50 0.50"),
    },
}


def cifar(classes: int, method: str, split: str) -> tuple[Value, Value] | None:
    """Return Table 2's Purity and NMI, None where it has none."""
    texts = _CIFAR.get(classes, {}).get(method)
    if texts is None:
        return None
    purity, nmi = (_values(text, 2)[FEATURE_SPLITS.index(split)] for text in texts)
    return purity, nmi
