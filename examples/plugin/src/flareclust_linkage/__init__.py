"""Linkage: the sites' centroids merged by average linkage, as an algorithm of flareclust."""

from flareclust import Algorithm

LINKAGE = Algorithm(
    "linkage",
    "Linkage: the sites' centroids, merged by average linkage",
    "flareclust_linkage.executor.LinkageExecutor",
    "flareclust_linkage.aggregator.LinkageAggregator",
    frozenset({"one-shot", "recovers-iid", "recovers-non-iid", "small-sites", "translation"}),
    "an example",
    when="one message per site; an example of a plug-in",
)
