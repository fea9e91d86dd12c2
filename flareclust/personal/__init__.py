"""Personalised models: devices whose rows are of different clusters train one model per cluster."""

__all__ = ["executor", "jobs", "methods", "networks", "result", "rows", "run", "settings"]
