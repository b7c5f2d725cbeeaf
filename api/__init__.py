# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Contracts between programs: keys and their writers, names, limits, formats. Pure."""
