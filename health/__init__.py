# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""One table from what is wrong with GPUs to a verdict, for all who act on it. Pure."""
