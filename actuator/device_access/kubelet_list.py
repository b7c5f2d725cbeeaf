# SPDX-License-Identifier: Apache-2.0
"""What of the kubelet's list of devices is no longer so after a change of MIG layouts. Pure.

A device plugin lists MIG devices when it starts. A kubelet that finds a pod with a device which
its plugin does not list ends at each start, with every TopologyManager policy but none: seen with
Kubernetes 1.37.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from discovery.host.kubelet_devices import KubeletDevices
from mig.pod_holders import SHARE

_OF_NVIDIA = ("MIG-", "GPU-")
_OLD = "MIG-GPU-"
"""Names of MIG devices with drivers before 470, which have no UUIDs."""


def stale_list(kubelet: KubeletDevices, uuids: Collection[str]) -> Iterator[str]:
    """A sentence for each thing that somebody has to do; ``uuids``: the MIG devices that there are.

    None where no plugin of NVIDIA's devices is registered.
    """
    offered = {name.partition(SHARE)[0] for name in kubelet.offered}
    if any(name.startswith(_OF_NVIDIA) for name in offered):
        listed = {name for name in offered if _is_mig(name)}
        counts = {"too many": listed - set(uuids), "too few": set(uuids) - listed}
        words = [f"{len(names)} {which}" for which, names in counts.items() if names]
        if words:
            yield (
                f"the device plugin's list of MIG devices is old ({', '.join(words)}): restart its"
                " pod, which makes the list when it starts"
            )
    for pod, names in sorted(_gone(kubelet.held, uuids).items()):
        yield (
            f"pod {pod} holds {', '.join(sorted(names))}, which is gone: delete the pod; while it"
            " is there, a kubelet with a TopologyManager policy ends each time it starts"
        )


def _gone(held: Mapping[str, Collection[str]], uuids: Collection[str]) -> dict[str, set[str]]:
    """Pod to the MIG devices that it has and that are gone."""
    found: dict[str, set[str]] = {}
    for name, pods in held.items():
        device = name.partition(SHARE)[0]
        if _is_mig(device) and device not in uuids:
            for pod in pods:
                found.setdefault(pod, set()).add(device)
    return found


def _is_mig(name: str) -> bool:
    return name.startswith("MIG-") and not name.startswith(_OLD)
