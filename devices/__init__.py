# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Hands GPUs to containers: the kubelet's device plugin, and the DRA driver."""
