# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout``: MIG layouts for many Nodes."""
