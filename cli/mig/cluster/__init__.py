# SPDX-License-Identifier: Apache-2.0
"""The MIG layouts of a cluster's Nodes, read with the rights of whoever runs a command."""
