# A package of gpuscape.
"""Serving HTTP: what every program of gpuscape that listens has in common."""
