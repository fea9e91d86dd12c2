"""The tables and figures of FeCA's paper.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): section 6 and Appendices B to E. Not
here are Figures 1, 2, 4, 6 to 8, 11 and 13 to 18, which picture rows.
"""

from benchmarks.papers import feca_ablation, feca_deep, feca_sizes, feca_steps, feca_tables
from benchmarks.papers.base import Entry

ENTRIES = (
    Entry("feca-table1", ("feca-table4", "feca-figure3"), "methods on the S-sets", feca_tables.table1),
    Entry("feca-table2", (), "Purity and NMI on images, or on features of one's own", feca_tables.table2),
    Entry("feca-table3", (), "DeepFeCA by linear evaluation", feca_deep.table3, "deep"),
    Entry("feca-ablation", (), "what decides DeepFeCA's accuracy", feca_ablation.ablation, "deep"),
    Entry("feca-table5", (), "without the removal of one-fit-many centroids", feca_steps.table5),
    Entry("feca-table6", (), "theoretical and empirical radii", feca_steps.table6),
    Entry("feca-table7", ("feca-figure9",), "k' of k-FED", feca_sizes.table7),
    Entry("feca-table8", ("feca-table9", "feca-figure12"), "the number of clients", feca_sizes.table8),
    Entry("feca-table10", (), "other numbers of clusters", feca_steps.table10),
    Entry("feca-figure5", (), "are the radii large enough?", feca_steps.figure5),
    Entry("feca-figure10", (), "how often k-means on the pooled rows is stuck", feca_sizes.figure10),
)
