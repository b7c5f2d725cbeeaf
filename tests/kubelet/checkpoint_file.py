# SPDX-License-Identifier: Apache-2.0
"""A kubelet's checkpoint of its devices, and the folders of its pods, below a host's root."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from discovery.host.kubelet_devices import CHECKPOINT, LOGS, PODS


def write_checkpoint(
    root: Path,
    held: Mapping[str, Collection[str]],
    *,
    offered: Mapping[str, Collection[str]] | None = None,
    gone: Collection[str] = (),
) -> Path:
    """As a kubelet leaves it; ``held``: a pod's name in namespace ``default`` to its devices.

    ``offered``: resource to devices. ``gone``: pods that have been deleted.
    """
    entries = [
        {
            "PodUID": f"uid-of-{pod}",
            "ContainerName": "main",
            "ResourceName": "nvidia.com/gpu",
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
            (root / LOGS / f"default_{pod}_uid-of-{pod}").mkdir(parents=True, exist_ok=True)
    file = root / CHECKPOINT
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"Data": data, "Checksum": 1}), encoding="utf-8")
    return file
