# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that the admin asks for on the Node: what came of it, on the Node too."""
