"""NVIDIA GPUs of this machine."""
