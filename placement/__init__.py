# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""What a set of GPUs is worth to a pod and to others: pure, one table for each topology class."""
