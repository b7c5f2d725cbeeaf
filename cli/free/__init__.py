# SPDX-License-Identifier: Apache-2.0
"""``gpuscape free``: what is free in the cluster."""
