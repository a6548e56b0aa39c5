"""Products of one input made one product."""
