"""Prefect flows: partition, submit, evaluate, log."""

__all__ = ["configured", "experiment", "nightly", "personalise", "run", "runners", "server", "steps", "study", "sweep"]
