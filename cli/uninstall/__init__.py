# SPDX-License-Identifier: Apache-2.0
"""``gpuscape uninstall``: takes away what the programs have left in a cluster."""
