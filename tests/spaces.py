"""Small recorded spaces: `hetfeat.testing` ships them."""

from hetfeat.testing.spaces import *  # noqa: F403
