"""Building and timing matrix multiplications of a tile space."""
