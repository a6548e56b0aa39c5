"""Measured records: storing, splitting and pruning them."""
