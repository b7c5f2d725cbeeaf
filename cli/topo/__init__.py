# SPDX-License-Identifier: Apache-2.0
"""``gpuscape topo``: the matrix of links, and how it differs from one of nvidia-smi's."""
