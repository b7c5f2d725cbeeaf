# SPDX-License-Identifier: Apache-2.0
"""Stale entries of the kubelet's list of devices after a change of MIG layouts. Pure.

A device plugin lists MIG devices when it starts. A kubelet that finds a pod with a device which
its plugin does not list ends at each start, with every TopologyManager policy but none: seen with
Kubernetes 1.37.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from api.device_names import SHARE
from kubelet.devices_checkpoint import KubeletDevices

_OF_NVIDIA = ("MIG-", "GPU-")
_OLD = "MIG-GPU-"
"""Prefix of MIG devices of drivers before 470, which have no UUIDs."""
_RESTART: Final = "restart its pod, which makes the list when it starts"


def stale_list(kubelet: KubeletDevices, devices: Mapping[str, bool]) -> Iterator[str]:
    """A sentence for each problem, with the fix.

    ``devices``: UUID of each current MIG device, to whether it takes all of its GPU instance. No
    sentence about a plugin if none of NVIDIA's is registered. Its strategy is not known here: with
    ``none`` it lists no MIG device, however often it is started.
    """
    offered = {name.partition(SHARE)[0] for name in kubelet.offered}
    if any(name.startswith(_OF_NVIDIA) for name in offered):
        sentence = _list_problem(_mig_uuids(offered), devices)
        if sentence is not None:
            yield sentence
    for pod, names in sorted(_stale_devices(kubelet.held, devices).items()):
        yield (
            f"pod {pod} holds {', '.join(sorted(names))}, which is gone: delete the pod; while it"
            " is there, a kubelet with a TopologyManager policy ends each time it starts"
        )


def _list_problem(listed: Collection[str], devices: Mapping[str, bool]) -> str | None:
    """Why a plugin's list of MIG devices is wrong, with the fix; None if it is right."""
    gone = set(listed) - devices.keys()
    missing = devices.keys() - set(listed)
    if gone:
        more = f", and not {len(missing)} that are there" if missing else ""
        return f"the device plugin offers {len(gone)} MIG devices that are gone{more}: {_RESTART}"
    if not missing:
        return None
    if not listed:
        return (
            f"the device plugin offers none of the {len(missing)} MIG devices: {_RESTART}. With its"
            " strategy none it offers none, and a GPU with MIG on as a whole"
        )
    few = f"{len(missing)} of {len(devices)} MIG devices"
    parts = not any(devices[uuid] for uuid in missing)
    hint = ". It may leave out those that are a part of their GPU instance" if parts else ""
    return f"the device plugin does not offer {few}: {_RESTART}{hint}"


def _stale_devices(
    held: Mapping[str, Collection[str]], uuids: Collection[str]
) -> dict[str, set[str]]:
    """Pod to the MIG devices that it holds and that no longer exist."""
    devices_by_pod: dict[str, set[str]] = {}
    for name, pods in held.items():
        for device in _mig_uuids([name.partition(SHARE)[0]]):
            if device not in uuids:
                for pod in pods:
                    devices_by_pod.setdefault(pod, set()).add(device)
    return devices_by_pod


def _mig_uuids(names: Collection[str]) -> set[str]:
    return {name for name in names if name.startswith("MIG-") and not name.startswith(_OLD)}
