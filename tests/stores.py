"""Small record stores: `hetfeat.testing` ships them."""

from hetfeat.testing.stores import *  # noqa: F403
