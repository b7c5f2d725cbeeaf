# SPDX-License-Identifier: Apache-2.0
"""The HTTP extender that kube-scheduler asks."""
