# SPDX-License-Identifier: Apache-2.0
"""The simulated machine's host: its /sys, /proc and /dev."""
