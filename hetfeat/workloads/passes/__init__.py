"""Rewrites of a network's graph before tasks are extracted from it."""

INJECTIVE = 2
"""TVM's pattern of what gives elements other places."""
OUT_ELEMENTWISE_FUSABLE = 4
"""TVM's pattern of a convolution or a product: what follows element by element becomes part of its
kernel."""
