"""Arithmetic on constants, done once, before a network is compiled."""
