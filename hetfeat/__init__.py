"""Cost models that know the hardware, and what is built on them."""

__version__ = "0.1.0"
