"""Nodes, Leases and pods as the cluster tells of them, and which GPUs are free by now."""
