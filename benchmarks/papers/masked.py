"""Maritan and Schenato, "Distributed Clustering in Partially Overlapping Feature Spaces", again."""

from benchmarks.papers import masked_baselines, masked_damaged, masked_dims, masked_tables
from benchmarks.papers.base import Entry

ENTRIES = (
    Entry("masked-table1", (), "how often Assumption 8 holds", masked_tables.table1),
    Entry("masked-table2", (), "Algorithm 1, method A, Assumption 1", masked_tables.table2),
    Entry("masked-table3", (), "Algorithm 1, method B, Assumption 2", masked_tables.table3),
    Entry("masked-table4", (), "Algorithm 2, Assumption 1", masked_tables.table4),
    Entry("masked-table5", (), "Algorithm 2, Assumption 2", masked_tables.table5),
    Entry("masked-dims", (), "both algorithms on 32 to 1024 columns", masked_dims.dims),
    Entry("masked-damaged", (), "the federated rounds from a damaged start", masked_damaged.damaged),
    Entry("masked-baselines", (), "both algorithms beside simpler ways", masked_baselines.baselines),
)
