"""Packs: programs built here, to be measured on a device that only runs them."""
