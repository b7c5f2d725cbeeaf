# SPDX-License-Identifier: Apache-2.0
"""Calls and output that may never end, and keep nobody waiting."""
