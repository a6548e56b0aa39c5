"""Measuring on servers of a TVM RPC tracker."""
