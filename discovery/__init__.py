# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Facts about this node: read once into frozen values, below everything else."""
