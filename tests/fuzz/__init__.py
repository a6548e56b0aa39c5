"""Fuzzing of the parsers of others' bytes: `make fuzz`."""
