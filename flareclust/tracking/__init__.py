"""MLflow: runs, models, promotion."""
