"""What sites and server agree on: tasks, replies, schemas, the algorithms, the files of a result."""

__all__ = ["batch", "cluster_arrays", "outcome", "params", "registry", "replies", "schema", "sizes", "steps", "task"]
