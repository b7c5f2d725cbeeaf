# SPDX-License-Identifier: Apache-2.0
"""What the agent serves on /metrics, and what the settings say of it."""
