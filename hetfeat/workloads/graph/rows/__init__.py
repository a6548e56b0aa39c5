"""Matrix products with rows that cannot be tiled, computed with a few more."""
