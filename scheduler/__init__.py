# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Scores of nodes for a pod, by the GPUs that it will most probably get on each."""
