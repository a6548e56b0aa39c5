"""Bundles on servers of the device that they were compiled for."""
