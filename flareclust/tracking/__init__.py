"""MLflow: runs, models, promotion."""

__all__ = ["load", "model", "note", "origin", "pages", "promotion", "run_logging", "runs", "store", "sweep_runs"]
