# SPDX-License-Identifier: Apache-2.0
"""The device reader: the one process that calls NVML, and how the agent speaks to it."""
