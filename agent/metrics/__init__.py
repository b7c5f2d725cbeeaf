# SPDX-License-Identifier: Apache-2.0
"""Metrics that the agent serves on /metrics, and their settings."""
