# SPDX-License-Identifier: Apache-2.0
"""Cache of the cluster's Nodes, Leases and pods, and which GPUs are free by now."""
