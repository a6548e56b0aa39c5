"""Keeping a registry and a machine in order: audit, repair, retention, environment checks."""
