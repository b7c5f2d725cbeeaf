# SPDX-License-Identifier: Apache-2.0
"""NVML reads: one call each, every missing reading a gap. Loaded in the device reader only."""
