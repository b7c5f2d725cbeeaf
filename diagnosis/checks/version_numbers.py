# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes as pairs that can be compared. Pure."""

from __future__ import annotations

from base.settings.version_skew import minor_version
from kube.api import Object
from kube.objects.node import Node


def kubelet_version(node: Object) -> tuple[int, int] | None:
    """The minor version of a Node's kubelet; None where the Node does not give it."""
    return minor_version(Node.from_object(node).status.node_info.kubelet_version)
