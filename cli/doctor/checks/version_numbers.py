# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes as pairs that can be compared. Pure."""

from __future__ import annotations

from base.settings.version_skew import minor_version
from kube.api import Object


def kubelet_version(node: Object) -> tuple[int, int] | None:
    """That of the Node's kubelet; None where it does not say."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return minor_version(str(info.get("kubeletVersion") or ""))
