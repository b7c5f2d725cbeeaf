# SPDX-License-Identifier: Apache-2.0
"""Boots of the node that bring a MIG mode."""
