# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources: how Kubernetes writes them, and what pods request of them."""
