# SPDX-License-Identifier: Apache-2.0
"""``gpuscape dcgm-exporter``: the agent with dcgm-exporter's flags and variables."""
