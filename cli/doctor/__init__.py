# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor``: what is wrong on a node, with a pod, or with a Node, and how to mend it."""
