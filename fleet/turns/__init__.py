# SPDX-License-Identifier: Apache-2.0
"""A node's turns with a slot: which it has had, and how far the present one is."""
