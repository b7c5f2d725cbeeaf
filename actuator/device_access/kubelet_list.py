# SPDX-License-Identifier: Apache-2.0
"""What of the kubelet's list of devices is no longer so after a change of MIG layouts. Pure.

A device plugin lists MIG devices when it starts. A kubelet that finds a pod with a device which
its plugin does not list ends at each start, with every TopologyManager policy but none: seen with
Kubernetes 1.37.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from api.device_names import SHARE
from discovery.host.kubelet_devices import KubeletDevices

_OF_NVIDIA = ("MIG-", "GPU-")
_OLD = "MIG-GPU-"
"""Names of MIG devices with drivers before 470, which have no UUIDs."""
_RESTART: Final = "restart its pod, which makes the list when it starts"


def stale_list(kubelet: KubeletDevices, devices: Mapping[str, bool]) -> Iterator[str]:
    """A sentence for each thing that somebody has to do.

    ``devices``: UUID of each MIG device that there is, to whether it is all of its GPU instance.
    None where no plugin of NVIDIA's devices is registered. Its strategy is not known here: with
    ``none`` it lists no MIG device, however often it is started.
    """
    offered = {name.partition(SHARE)[0] for name in kubelet.offered}
    if any(name.startswith(_OF_NVIDIA) for name in offered):
        sentence = _old(_mig(offered), devices)
        if sentence is not None:
            yield sentence
    for pod, names in sorted(_gone(kubelet.held, devices).items()):
        yield (
            f"pod {pod} holds {', '.join(sorted(names))}, which is gone: delete the pod; while it"
            " is there, a kubelet with a TopologyManager policy ends each time it starts"
        )


def _old(listed: Collection[str], devices: Mapping[str, bool]) -> str | None:
    """What a plugin lists that is gone, or does not list; None where its list is right."""
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
    parts = not any(devices[one] for one in missing)
    hint = ". It may leave out those that are a part of their GPU instance" if parts else ""
    return f"the device plugin does not offer {few}: {_RESTART}{hint}"


def _gone(held: Mapping[str, Collection[str]], uuids: Collection[str]) -> dict[str, set[str]]:
    """Pod to the MIG devices that it has and that are gone."""
    found: dict[str, set[str]] = {}
    for name, pods in held.items():
        for device in _mig([name.partition(SHARE)[0]]):
            if device not in uuids:
                for pod in pods:
                    found.setdefault(pod, set()).add(device)
    return found


def _mig(names: Collection[str]) -> set[str]:
    return {one for one in names if one.startswith("MIG-") and not one.startswith(_OLD)}
