"""Device profiles: what a machine is, and how it is reached."""
