"""Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021), again."""

from benchmarks.papers import kfed_mixtures, kfed_oracle, kfed_partitions, kfed_personal, kfed_rounds, kfed_selection
from benchmarks.papers.base import Entry

ENTRIES = (
    Entry("kfed-table1", (), "mixtures of Gaussians", kfed_mixtures.table1),
    Entry("kfed-figure1", (), "accuracy against the separation c", kfed_mixtures.figure1),
    Entry("kfed-figure2", (), "structured against random partitions", kfed_partitions.figure2),
    Entry("kfed-figure3", (), "one shot against distributed k-means", kfed_rounds.figure3),
    Entry("kfed-personal", ("kfed-table2",), "personalised models of rotated MNIST", kfed_personal.table2, "deep"),
    Entry(
        "kfed-figure4", ("kfed-selection",), "clients of a round by loss and clusters", kfed_selection.figure4, "deep"
    ),
    Entry("kfed-figure5", (), "separation of the clusters of MNIST", kfed_oracle.figure5),
)
