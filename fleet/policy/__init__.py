# SPDX-License-Identifier: Apache-2.0
"""The fleet policy: which Nodes are to have which MIG layout."""
