"""Cost models and the metrics they are judged by."""
