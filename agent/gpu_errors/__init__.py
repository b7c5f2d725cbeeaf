# SPDX-License-Identifier: Apache-2.0
"""Errors of GPUs and NVSwitches: XIDs and SXids, from NVML and from the kernel log."""
