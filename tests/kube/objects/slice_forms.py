# SPDX-License-Identifier: Apache-2.0
"""One ResourceSlice as API servers of three ages send it, written by hand.

Source: Kubernetes API reference, ResourceSlice v1, v1beta2 and v1beta1; attributes as NVIDIA's DRA
driver publishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_META: Final = {
    "name": "node-a-gpu.nvidia.com-xyz",
    "uid": "2f1c",
    "resourceVersion": "7",
}
_POOL: Final = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
_FIRST: Final = {
    "uuid": {"string": "GPU-a"},
    "productName": {"string": "NVIDIA H100"},
    "index": {"int": 0},
    "driverVersion": {"version": "580.95.5"},
}
_SECOND: Final = {"uuid": {"string": "GPU-b"}}
_MEMORY: Final = {"memory": {"value": "80Gi"}}

FORMS: Final[Mapping[str, dict[str, Any]]] = {
    "v1": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": _META,
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": _POOL,
            "devices": [
                {"name": "gpu-0", "attributes": _FIRST, "capacity": _MEMORY},
                {"name": "gpu-1", "attributes": _SECOND, "capacity": _MEMORY},
                {"name": "gpu-2"},
            ],
        },
    },
    "v1beta2": {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "ResourceSlice",
        "metadata": _META,
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": _POOL,
            "devices": [
                {"name": "gpu-0", "attributes": _FIRST, "capacity": _MEMORY},
                {"name": "gpu-1", "attributes": _SECOND, "capacity": _MEMORY},
                {"name": "gpu-2"},
            ],
        },
    },
    "v1beta1": {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": _META,
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-a",
            "pool": _POOL,
            "devices": [
                {"name": "gpu-0", "basic": {"attributes": _FIRST, "capacity": _MEMORY}},
                {"name": "gpu-1", "basic": {"attributes": _SECOND, "capacity": _MEMORY}},
                {"name": "gpu-2", "basic": {}},
            ],
        },
    },
}
"""By version, the newest first."""
