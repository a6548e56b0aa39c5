"""Building and timing candidate programs."""
