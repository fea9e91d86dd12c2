"""Prefect flows: partition, submit, evaluate, log.

No module here has `from __future__ import annotations`: Prefect cannot resolve string annotations of a flow that it serves.
"""

__all__ = [
    "configured",
    "experiment",
    "federation",
    "nightly",
    "personalise",
    "run",
    "runners",
    "server",
    "steps",
    "study",
    "sweep",
]
