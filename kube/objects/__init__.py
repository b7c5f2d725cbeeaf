# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects with types: the fields of Nodes and pods that our programs read."""
