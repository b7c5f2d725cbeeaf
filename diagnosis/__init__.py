# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""What is wrong on a node, with a pod or in a cluster: from facts to findings."""
