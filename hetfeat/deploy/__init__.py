"""From a tuned network to a bundle that runs without us."""
