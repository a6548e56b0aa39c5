"""Proposing candidate programs."""
