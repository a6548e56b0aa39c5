"""Files of versions: manifests, verified copies, and lending them to devices without MLflow."""
