"""Personalised models: devices whose rows are of different clusters train one model per cluster."""

__all__ = ["executor", "jobs", "local_training", "methods", "networks", "result", "rows", "run", "settings"]
