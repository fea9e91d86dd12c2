"""What sites and server agree on: tasks, replies, schemas, the algorithms, the files of a result."""

__all__ = [
    "batch",
    "cluster_arrays",
    "columns",
    "digests",
    "outcome",
    "parametrized",
    "params",
    "registry",
    "replies",
    "rounds",
    "rows",
    "schema",
    "sizes",
    "stages",
    "state",
    "steps",
    "task",
]
