"""Rewrites of a network's graph before tasks are extracted from it."""
