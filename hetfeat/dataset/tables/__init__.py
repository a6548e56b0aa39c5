"""Records that a lab shares: a Delta Lake table to which many processes append at once."""
