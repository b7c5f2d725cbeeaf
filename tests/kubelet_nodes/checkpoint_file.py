# SPDX-License-Identifier: Apache-2.0
"""A kubelet's checkpoint of its devices, and the folders of its pods, below a host's root."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from kubelet.claims_checkpoint import CLAIMS
from kubelet.devices_checkpoint import CHECKPOINT, LOGS, PODS


def write_checkpoint(
    root: Path,
    held: Mapping[str, Collection[str]],
    *,
    offered: Mapping[str, Collection[str]] | None = None,
    gone: Collection[str] = (),
    resource: str = "nvidia.com/gpu",
) -> Path:
    """As a kubelet leaves it; ``held``: a pod's name in namespace ``default`` to its devices.

    ``offered``: resource to devices. ``gone``: pods that have been deleted.
    """
    entries = [
        {
            "PodUID": f"uid-of-{pod}",
            "ContainerName": "main",
            "ResourceName": resource,
            "DeviceIDs": {"0": list(devices)},
            "AllocResp": "CgA=",
        }
        for pod, devices in held.items()
    ]
    registered = {name: list(ids) for name, ids in (offered or {}).items()}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    (root / PODS).mkdir(parents=True, exist_ok=True)
    for pod in held:
        if pod not in gone:
            (root / PODS / f"uid-of-{pod}").mkdir(exist_ok=True)
            _name(root, pod)
    file = root / CHECKPOINT
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"Data": data, "Checksum": 1}), encoding="utf-8")
    return file


def write_claims(
    root: Path, held: Mapping[str, Collection[str]], *, driver: str = "gpu.nvidia.com"
) -> Path:
    """ResourceClaims as a kubelet writes them down; ``held``: a pod's name to its devices."""
    claims = [
        {
            "ClaimUID": f"uid-of-claim-of-{pod}",
            "ClaimName": f"claim-of-{pod}",
            "Namespace": "default",
            "PodUIDs": {f"uid-of-{pod}": {}},
            "DriverState": {driver: {"Devices": [_device(name) for name in devices]}},
        }
        for pod, devices in held.items()
    ]
    for pod in held:
        _name(root, pod)
    data = {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": claims or None,
    }
    file = root / CLAIMS
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"Data": json.dumps(data), "Checksum": 1}), encoding="utf-8")
    return file


def _device(name: str) -> dict[str, object]:
    return {
        "PoolName": "node-a",
        "DeviceName": name,
        "ShareID": None,
        "RequestNames": ["gpu"],
        "CDIDeviceIDs": [f"k8s.gpu.nvidia.com/device={name}"],
    }


def _name(root: Path, pod: str) -> None:
    """The folder of a pod's logs has its name."""
    (root / LOGS / f"default_{pod}_uid-of-{pod}").mkdir(parents=True, exist_ok=True)
