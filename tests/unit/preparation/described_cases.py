"""Sites with different columns that several test files use."""

import pandas as pd

from flareclust.protocol import registry
from flareclust.testing.promised import overlapping_sites

PARTIAL = [a.name for a in registry.algorithms().values() if a.partial]

FEDERATED = [name for name in PARTIAL if registry.get(name).federated]


def frames(seed: int = 0) -> dict[str, pd.DataFrame]:
    sites, _ = overlapping_sites(seed)
    return {site: pd.DataFrame(table.X, columns=list(table.columns or ())) for site, table in sites.items()}
