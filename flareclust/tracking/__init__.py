"""MLflow: runs, models, promotion."""

__all__ = ["load", "model", "note", "origin", "promotion", "run_logging", "runs", "store", "sweep_runs"]
