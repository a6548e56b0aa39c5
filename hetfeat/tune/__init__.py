"""Deciding what to measure next: collecting records, and tuning networks."""
