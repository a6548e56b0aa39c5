"""Registered models: versions, stages, gates, and the history of every move."""
