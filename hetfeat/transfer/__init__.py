"""Adapting a source model to a device with few measurements."""
