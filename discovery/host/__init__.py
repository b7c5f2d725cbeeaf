# SPDX-License-Identifier: Apache-2.0
"""The host around the GPUs, from sysfs and procfs."""
