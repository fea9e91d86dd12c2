"""An experiment: what it is, its federation, its run and its result; and studies of many."""

__all__ = ["config", "plotting", "poc", "prepare", "prepared", "reports", "results", "submit", "sweeps", "tables"]
