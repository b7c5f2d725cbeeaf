# SPDX-License-Identifier: Apache-2.0
"""NVLinks and the fabric."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pynvml

from discovery.nvml_abi.argument_kinds import SUCCESS, Nvml
from simulator.answers.identity import pci_address
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    answers_on_gpu,
    need,
)
from simulator.description.machine_schema import FabricSpec
from simulator.machine_view import LinkEnd, SimulatedGpu

_PEER_GPU, _PEER_SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_CAPABILITIES = 6  # NVML_NVLINK_CAP_COUNT
_ERROR_COUNTERS = 5  # NVML_NVLINK_ERROR_COUNT
_HIDDEN_BUS_ID = {"busId": "FFFFFFFF:FF:FF.0", "domain": 0xFFFFFFFF, "bus": 0xFF, "device": 0xFF}
"""Far end that a link to an NVSwitch reports."""
_NO_CLUSTER = UUID(int=0)


# NVLink


@answers_on_gpu("nvmlDeviceGetNvLinkState")
def link_state(gpu: SimulatedGpu, link: int) -> int:
    """1 where the link is active, as this GPU sees it."""
    end = _end(gpu, link)
    return int(end is not None and is_up(gpu, link))


@answers_on_gpu("nvmlDeviceGetNvLinkVersion")
def link_version(gpu: SimulatedGpu, link: int) -> int:
    """NVML's version enum."""
    _end(gpu, link)
    return gpu.model.nvlink_version


@answers_on_gpu("nvmlDeviceGetNvLinkCapability")
def link_capability(gpu: SimulatedGpu, link: int, capability: int) -> int:
    """1 for every capability, on links that lead somewhere."""
    end = _end(gpu, link)
    if capability >= _CAPABILITIES:
        raise Nvml(INVALID_ARGUMENT)
    return int(end is not None)


@answers_on_gpu("nvmlDeviceGetNvLinkRemoteDeviceType")
def link_peer_type(gpu: SimulatedGpu, link: int) -> int:
    """GPU or switch; NOT_SUPPORTED where the link leads nowhere or is down."""
    end = _live_end(gpu, link)
    return _PEER_SWITCH if end.place is None else _PEER_GPU


@answers_on_gpu("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def link_peer(gpu: SimulatedGpu, link: int) -> dict[str, Any]:
    """The far GPU's bus id; all ones behind a switch, as the drivers of such machines say."""
    end = _live_end(gpu, link)
    if end.place is None:
        return _HIDDEN_BUS_ID
    peer = gpu.view.gpu_at(end.place)
    return pci_address(peer.spec.bus_id) | {"pciDeviceId": peer.model.device_id}


@answers_on_gpu("nvmlDeviceGetNvLinkErrorCounter")
def link_error_counter(gpu: SimulatedGpu, link: int, counter: int) -> int:
    """0: no error ever happens."""
    _end(gpu, link)
    if counter >= _ERROR_COUNTERS:
        raise Nvml(INVALID_ARGUMENT)
    return 0


def is_up(gpu: SimulatedGpu, link: int) -> bool:
    """The link is trained, is not down at this end, and the GPU at the other is there."""
    end = gpu.view.link_ends[gpu.place][link]
    if end is None or link in gpu.state.links_down or not is_trained(gpu, end):
        return False
    return end.place is None or gpu.view.gpu_at(end.place).state.listed


def is_trained(gpu: SimulatedGpu, end: LinkEnd) -> bool:
    """Whether a link is trained: on Ampere not while MIG is on at either end, later always.

    Source: NVIDIA Fabric Manager User Guide, "Interoperability With Multi-Instance
    GPUs". It says so of NVSwitch machines; of bridged cards it leaves open whether
    links are disabled or only not used, and here they are disabled on Ampere too.
    """
    peer = None if end.place is None else gpu.view.gpu_at(end.place)
    return not any(
        side.state.mig and side.model.architecture < pynvml.NVML_DEVICE_ARCH_HOPPER
        for side in (gpu, peer)
        if side is not None
    )


def can_be_peers(first: SimulatedGpu, second: SimulatedGpu) -> bool:
    """Whether two GPUs can reach each other's memory at all.

    Not with MIG on, nor before both are registered, in one clique, with the fabric
    of those that have one.
    Source: NVIDIA Fabric Manager User Guide, "Initializing NVSwitch and NVLink".
    """
    if first.state.mig or second.state.mig:
        return False
    specs = [fabric_of(side) for side in (first, second)]
    fabrics = [spec for spec in specs if spec is not None and spec.state]
    return all((spec.state, spec.status) == (_COMPLETED, SUCCESS) for spec in fabrics) and (
        len({(spec.cluster_uuid, spec.clique_id) for spec in fabrics}) <= 1
    )


def link_count(gpu: SimulatedGpu) -> int:
    """Links the GPU has, used or not. Raises Nvml: NOT_SUPPORTED where it has none."""
    need(gpu.model.nvlink_links)
    return gpu.model.nvlink_links


def _end(gpu: SimulatedGpu, link: int) -> LinkEnd | None:
    if link >= link_count(gpu):
        raise Nvml(INVALID_ARGUMENT)
    return gpu.view.link_ends[gpu.place][link]


def _live_end(gpu: SimulatedGpu, link: int) -> LinkEnd:
    end = _end(gpu, link)
    if end is None or not is_up(gpu, link):
        raise Nvml(NOT_SUPPORTED)
    return end


# fabric


def fabric_of(gpu: SimulatedGpu) -> FabricSpec | None:
    """The fabric it is, or is to be, registered with."""
    return gpu.state.fabric or gpu.spec.fabric


def _fabric(gpu: SimulatedGpu) -> dict[str, Any]:
    """Fields of every version; without registration state 0, not supported."""
    need(gpu.model.fabric)
    spec = fabric_of(gpu)
    if spec is None:
        return {"clusterUuid": list(_NO_CLUSTER.bytes)}
    return {
        "clusterUuid": list(UUID(spec.cluster_uuid).bytes),
        "cliqueId": spec.clique_id,
        "state": spec.state,
        "status": spec.status,
        "healthMask": spec.health_mask,
        "healthSummary": spec.health_summary,
    }


@answers_on_gpu("nvmlDeviceGetGpuFabricInfo")
def fabric_v1(gpu: SimulatedGpu) -> dict[str, Any]:
    """Fabric info of the first version, which has no health."""
    return {name: value for name, value in _fabric(gpu).items() if not name.startswith("health")}


@answers_on_gpu("nvmlDeviceGetGpuFabricInfoV")
def fabric(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, Any]:
    """Fabric info of the versions that have health."""
    fields = _fabric(gpu)
    if version["version"] == pynvml.nvmlGpuFabricInfo_v2:
        fields.pop("healthSummary", None)
    return fields
