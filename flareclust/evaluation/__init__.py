"""How good a clustering is, and which number of clusters fits."""

__all__ = [
    "agreement",
    "batch_effects",
    "bounds_fit",
    "continuity",
    "criteria",
    "disclosure",
    "dominance",
    "metrics",
    "moved",
    "noisy_profiles",
    "null_reference",
    "outcomes",
    "profile_words",
    "profiles",
    "received",
    "scores",
    "selection",
    "stability",
    "units",
    "verdict",
]
