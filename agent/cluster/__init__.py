# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the API server: Node, Lease and NodeFeature, and the right to write them."""
