"""Everything that talks to MLflow: runs, model versions, stages, history, bundles."""
