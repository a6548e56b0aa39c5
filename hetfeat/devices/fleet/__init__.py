"""Devices behind a TVM RPC tracker: routes to them, the tracker, servers, and who a server is."""
