"""Traps of a machine and its environment, by what they are traps of."""
