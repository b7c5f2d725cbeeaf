# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Serving HTTP: what every program of gpuscape that listens has in common."""
