# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes as pairs that can be compared. Pure."""

from __future__ import annotations

import re

from kube.api import Object


def minor_version(version: str) -> tuple[int, int] | None:
    """``v1.37.1`` as (1, 37); None for what is no version."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return None if match is None else (int(match[1]), int(match[2]))


def kubelet_version(node: Object) -> tuple[int, int] | None:
    """That of the Node's kubelet; None where it does not say."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return minor_version(str(info.get("kubeletVersion") or ""))
