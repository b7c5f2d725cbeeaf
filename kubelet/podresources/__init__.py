# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pod-resources socket: which pod has which devices."""
