# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Health of GPUs: a table from each cause to a verdict, for all who act on it. Pure."""
