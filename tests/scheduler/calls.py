# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler sends to an extender, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


def pod(
    gpus: int | str = 2, *, resource: str = "nvidia.com/gpu", **metadata: Any
) -> dict[str, Any]:
    """A v1.Pod with fields that we do not read, too."""
    return {
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "0f9b",
            "creationTimestamp": None,
            **metadata,
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {
                        "limits": {resource: str(gpus)},
                        "requests": {resource: str(gpus), "cpu": "100m"},
                    },
                }
            ],
            "restartPolicy": "Always",
        },
        "status": {},
    }


def body(names: Iterable[str] | None = ("a", "b"), **more: Any) -> bytes:
    """ExtenderArgs as a scheduler with nodeCacheCapable sends them."""
    listed = None if names is None else list(names)
    return encoded({"Pod": pod(), "Nodes": None, "NodeNames": listed, **more})


def whole_nodes(names: Iterable[str]) -> dict[str, Any]:
    """A v1.NodeList."""
    items = [{"metadata": {"name": name, "labels": {"x": "y"}}, "spec": {}} for name in names]
    return {"metadata": {}, "items": items}


def encoded(value: object) -> bytes:
    """As JSON."""
    return msgspec.json.encode(value)
