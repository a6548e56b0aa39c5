"""Rewrites of a network's graph before tasks are extracted from it."""

BROADCAST = 1
"""TVM's pattern of what repeats elements: no kernel of a product takes it in, but others do."""
INJECTIVE = 2
"""TVM's pattern of what gives elements other places."""
OUT_ELEMENTWISE_FUSABLE = 4
"""TVM's pattern of a convolution or a product: what follows element by element becomes part of its
kernel."""
