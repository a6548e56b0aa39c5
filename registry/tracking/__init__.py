"""Runs of the tracking store, and what is logged into them."""
