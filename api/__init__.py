"""Contracts between programs: keys and their writers, names, limits, formats. Pure."""
