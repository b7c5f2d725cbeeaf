# SPDX-License-Identifier: Apache-2.0
"""Desired MIG layouts of the Node: evaluated, carried out, and shown in its status."""
