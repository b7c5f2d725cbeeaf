# SPDX-License-Identifier: Apache-2.0
"""Who holds which devices of a node: as the device manager has it, and as the agent shows it.

The kubelet reports no devices of an ordinary init container, and keeps them for its pod until
that ends: what such a container alone was given is not expected to be shown.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pynvml

from api import keys, topology_annotation
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node import handed_out
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster
from tests.node.nvidia_plugin import GPU
from tests.node.real_node import SOON

ENDED: Final = ("Succeeded", "Failed")

Part = tuple[str, str]
"""UUID of a GPU, and the number of a GPU instance of it or nothing."""
Holding = tuple[str, str, Part]
"""Pod, container and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """All that is known of a node's devices."""

    holdings: frozenset[Holding]
    instances: Mapping[Part, bool]
    """Each GPU instance, and whether somebody has it."""
    free: int | None
    """GPUs that are offered whole, not shared out, and that nobody has; an agent that begins does
    not know."""
    allocated: Mapping[str, int]
    allocatable: Mapping[str, int]
    """Resource to how many devices; one without any is left out."""
    pods: Mapping[str, int]
    """Key of a pod in the Lease to the mask of its GPUs."""
    used: int
    whole: int
    """Masks of the GPUs that pods have, and of those that are offered whole."""


class Attribution:
    """Both views of one node's devices."""

    def __init__(self, there: GpuCluster, node: str) -> None:
        """The devices of its machine are those that it has now."""
        self._there = there
        self._node = there.cluster.nodes[node]
        self._parts = dict(parts(there.gpus[node].simulation))
        """UUID of a GPU or MIG device to what it is."""

    def differences(self) -> list[str]:
        """Where the agent's view is another one than the device manager's, in words."""
        true, shown = self.true(), self.shown()
        if shown is None:
            return ["no scrape, or nothing on the Lease"]
        return [
            *self._contradictions(),
            *(
                f"{self._node.name}: {it}: {getattr(true, it)} is shown as {getattr(shown, it)}"
                for it in Held.__dataclass_fields__
                if getattr(true, it) != getattr(shown, it)
            ),
        ]

    def true(self) -> Held:
        """What the device manager handed out to pods that have not ended."""
        pods = self._pods()
        grants = [
            it
            for it in handed_out.grants(self._node)
            if it.pod_uid in pods and it.container in reported(pods[it.pod_uid])
        ]
        status = self._node.object()["status"]
        registered = {
            name: ids
            for name, ids in handed_out.registered(self._node).items()
            # which stay in the checkpoint when their plugin has gone
            if int(status["allocatable"].get(name, 0))
        }
        holdings = frozenset(
            (str(pods[it.pod_uid]["metadata"]["name"]), it.container, self._part(name))
            for it in grants
            for name in it.ids
        )
        order = self._order()
        held = {part for *_, part in holdings}
        used = _mask(order, held)
        undivided = (it for it in registered.get(GPU, ()) if handed_out.SHARE not in it)
        whole = _mask(order, map(self._part, undivided), whole=True)
        return Held(
            holdings=holdings,
            instances={it: it in held for it in self._parts.values() if it[1]},
            free=(whole & ~used).bit_count(),
            allocated=_counted((it.resource, name) for it in grants for name in it.ids),
            allocatable={name: len(ids) for name, ids in registered.items()},
            pods=self.masks(holdings),
            used=used,
            whole=whole,
        )

    def shown(self) -> Held | None:
        """What the agent publishes; None while it publishes nothing."""
        node = self._node.name
        found = self._there.scrape(node)
        state = self._there.state(node)
        if found is None or state is None:
            return None

        def of(name: str) -> Iterator[tuple[dict[str, str], float]]:
            return ((dict(at), value) for (known, at), value in found.items() if known == name)

        return Held(
            holdings=frozenset(
                (labels["pod"], labels["container"], _part(labels))
                for labels, _ in of("gpuscape_pod_gpu_info")
                if labels["namespace"] == NAMESPACE
            ),
            instances={
                _part(labels): bool(value)
                for labels, value in of("gpuscape_mig_instance_allocated")
            },
            free=next((int(value) for _, value in of("gpuscape_free_gpus")), None),
            allocated=_numbers(of("gpuscape_resource_allocated")),
            allocatable=_numbers(of("gpuscape_resource_allocatable")),
            pods={key: int(mask, 16) for key, mask in state.pods.items()},
            used=int(state.used, 16),
            whole=int(state.ok, 16),
        )

    def masks(self, holdings: Iterable[Holding]) -> Mapping[str, int]:
        """Key of a pod in the Lease to the mask of its GPUs."""
        order = self._order()
        masks: Counter[str] = Counter()
        for pod, _, (gpu, _) in holdings:
            masks[_key(pod)] |= 1 << order.index(gpu)
        return masks

    def _contradictions(self) -> Iterator[str]:
        """The judges agree: a container's environment names what the checkpoint has for it."""
        grants = handed_out.grants(self._node)
        pods = self._pods().keys() & {it.pod_uid for it in grants}
        for container in handed_out.running(self._node):
            if container.pod_uid not in pods:
                continue
            granted = [
                frozenset(map(handed_out.device_of, it.ids))
                for it in grants
                if (it.pod_uid, it.container) == (container.pod_uid, container.container)
            ]
            # of two resources the kubelet takes one variable, of either
            if container.visible not in (granted or [frozenset()]):
                yield f"{container} has, by the checkpoint, {granted}"

    def _part(self, name: str) -> Part:
        """What a device of the plugin's is all or a share of."""
        return self._parts[handed_out.device_of(name)]

    def _pods(self) -> dict[str, Object]:
        """UID to each pod of the node that has not ended."""
        query = f"fieldSelector=spec.nodeName%3D{self._node.name}"
        listed = self._there.cluster.plane.demand("GET", f"{PODS}?{query}")["items"]
        return {
            pod["metadata"]["uid"]: pod for pod in listed if pod["status"]["phase"] not in ENDED
        }

    def _order(self) -> tuple[str, ...]:
        """UUIDs of the GPUs, in the order of the bits of all masks."""
        annotations = self._node.object()["metadata"]["annotations"]
        topology = topology_annotation.decode(annotations[keys.TOPOLOGY])
        assert topology
        return topology.ids


def settle(views: Sequence[Attribution]) -> None:
    """Wait until the agents of these nodes show what is true."""
    try:
        until(lambda: not any(view.differences() for view in views), SOON)
    except AssertionError as error:
        error.add_note("\n".join(it for view in views for it in view.differences()))
        raise


def parts(simulation: Simulation) -> Iterator[tuple[str, Part]]:
    """UUID of each GPU and MIG device, and what that is, as NVML has it."""
    with simulation:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(gpu)
            yield uuid, (uuid, "")
            for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                try:
                    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
                except pynvml.NVMLError_NotFound:
                    continue
                instance = pynvml.nvmlDeviceGetGpuInstanceId(device)
                yield pynvml.nvmlDeviceGetUUID(device), (uuid, str(instance))
        pynvml.nvmlShutdown()


def reported(pod: Object) -> set[str]:
    """The containers of a pod whose devices the kubelet reports."""
    init = [
        it for it in pod["spec"].get("initContainers", ()) if it.get("restartPolicy") == "Always"
    ]
    return {it["name"] for it in (*init, *pod["spec"]["containers"])}


def _mask(order: Sequence[str], held: Iterable[Part], *, whole: bool = False) -> int:
    """Of the GPUs that these devices are parts of; of whole ones alone."""
    places = {order.index(gpu) for gpu, instance in held if not (whole and instance)}
    return sum(1 << place for place in places)


def _part(labels: Mapping[str, str]) -> Part:
    return labels["uuid"], labels.get("gpu_instance_id", "")


def _numbers(found: Iterator[tuple[dict[str, str], float]]) -> dict[str, int]:
    return {labels["resource"]: int(value) for labels, value in found if value}


def _counted(devices: Iterator[tuple[str, str]]) -> dict[str, int]:
    """One that two containers have counts once."""
    return dict(Counter(resource for resource, _ in set(devices)))


def _key(pod: str) -> str:
    """In the Lease. Source: docs/schemas/state.schema.json."""
    return hashlib.sha256(f"{NAMESPACE}/{pod}".encode()).hexdigest()[:8]
