# SPDX-License-Identifier: Apache-2.0
"""NVML's entry points: names, arguments, and how arguments lie in C memory."""
