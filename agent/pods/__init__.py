# SPDX-License-Identifier: Apache-2.0
"""Which pod holds which GPU: the kubelet's answers, joined with the snapshot and the API server."""
