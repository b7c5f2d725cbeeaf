# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler's filters, applied to pods and nodes as the API server has them. Pure."""
