# SPDX-License-Identifier: Apache-2.0
"""``gpuscape top``: this node, live."""
