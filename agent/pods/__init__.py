# SPDX-License-Identifier: Apache-2.0
"""Pods and the GPUs that they hold: the kubelet's answers, with the snapshot and the API server."""
