"""Tables and figures from plain data."""
