# A package of gpuscape.
"""Contracts between programs: keys and their writers, names, limits, formats. Pure."""
