# SPDX-License-Identifier: Apache-2.0
"""How near GPUs are to each other and to the CPUs."""

from __future__ import annotations

from collections.abc import Iterable

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.link_answers import can_be_peers, is_up
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    answers,
    answers_on_gpu,
    gpu_facts,
    supported,
)
from simulator.description.machine_schema import Gpu
from simulator.driver.handles import DeviceHandle
from simulator.host.cpu_lists import cpu_numbers
from simulator.machine_view import MachineView, SimulatedGpu

_P2P_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
_P2P_KINDS = 5  # NVML_P2P_CAPS_INDEX_UNKNOWN


@answers("nvmlDeviceGetTopologyCommonAncestor")
def ancestor(view: MachineView, a: DeviceHandle, b: DeviceHandle) -> int:
    """NVML_TOPOLOGY_*."""
    return common_ancestor(view.gpu(a).spec, view.gpu(b).spec)


@answers_on_gpu("nvmlDeviceGetTopologyNearestGpus")
def gpus_at_level(gpu: SimulatedGpu, level: int) -> list[DeviceHandle]:
    """Other GPUs at exactly this level."""
    gpus = (other for other in gpu.view.gpus if other is not gpu)
    return [other.handle for other in gpus if common_ancestor(gpu.spec, other.spec) == level]


@answers("nvmlDeviceOnSameBoard")
def on_same_board(view: MachineView, a: DeviceHandle, b: DeviceHandle) -> int:
    """1 for a GPU and itself: no simulated board holds two GPUs."""
    return int(view.gpu(a) is view.gpu(b))


@answers("nvmlDeviceGetP2PStatus")
def p2p_status(view: MachineView, a: DeviceHandle, b: DeviceHandle, index: int) -> int:
    """NVLink where both ends see a link; the rest between all GPUs that can be peers."""
    first, second = view.gpu(a), view.gpu(b)
    if index >= _P2P_KINDS:
        raise Nvml(INVALID_ARGUMENT)
    linked = index != _P2P_NVLINK or (_linked(first, second) and _linked(second, first))
    if not linked or not can_be_peers(first, second):
        return int(pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)
    return int(pynvml.NVML_P2P_STATUS_OK)


def _linked(gpu: SimulatedGpu, peer: SimulatedGpu) -> bool:
    ends = gpu.view.link_ends[gpu.place]
    return any(
        end is not None and end.place in (None, peer.place) and is_up(gpu, link)
        for link, end in enumerate(ends)
    )


@answers_on_gpu("nvmlDeviceGetCpuAffinity")
def cpu_affinity(gpu: SimulatedGpu, room: int) -> list[int]:
    """CPUs of the GPU's NUMA node, else of the whole host."""
    del room  # what does not fit is left out when it is written
    numa = gpu.view.machine.host.numa
    node = gpu.spec.numa_node
    lists = [gpu.spec.cpus] if gpu.spec.cpus else [numa[node]] if node >= 0 else list(numa)
    return _words(number for text in lists for number in cpu_numbers(text))


@answers_on_gpu("nvmlDeviceGetCpuAffinityWithinScope")
def cpu_affinity_within(gpu: SimulatedGpu, room: int, scope: int) -> list[int]:
    """CPUs near the GPU, alike for both scopes, node and socket."""
    _check(scope)
    return cpu_affinity(gpu, room)


@answers_on_gpu("nvmlDeviceGetMemoryAffinity")
def memory_affinity(gpu: SimulatedGpu, room: int, scope: int) -> list[int]:
    """NUMA node of the GPU, else all of the host's."""
    del room
    _check(scope)
    node = gpu.spec.numa_node
    return _words([node] if node >= 0 else range(len(gpu.view.machine.host.numa)))


def _check(scope: int) -> None:
    if scope not in (pynvml.NVML_AFFINITY_SCOPE_NODE, pynvml.NVML_AFFINITY_SCOPE_SOCKET):
        raise Nvml(INVALID_ARGUMENT)


gpu_facts({"nvmlDeviceGetNumaNodeId": lambda gpu: supported(gpu.spec.numa_id)}, mig_devices=False)


def _words(numbers: Iterable[int]) -> list[int]:
    """A bit set in 64-bit words, the lowest first."""
    bits = sum(1 << number for number in set(numbers))
    count = -(-bits.bit_length() // 64)
    return [bits >> (64 * word) & (2**64 - 1) for word in range(count)]


def common_ancestor(a: Gpu, b: Gpu) -> int:
    """NVML_TOPOLOGY_* of two devices.

    A switch is an upstream port with downstream ports below it, each of them a
    bridge. Devices at one switch have at most its downstream port each below the
    last bridge they share: SINGLE. More bridges on a side belong to more
    switches: MULTIPLE. No shared bridge but one root: HOSTBRIDGE. Else the NUMA
    node decides between NODE and SYSTEM.
    Source: nvmlGpuTopologyLevel_t in NVIDIA's nvml.h.
    """
    if a.bus_id == b.bus_id:
        return int(pynvml.NVML_TOPOLOGY_INTERNAL)
    if a.root != b.root:
        same_node = a.numa_node == b.numa_node
        return int(pynvml.NVML_TOPOLOGY_NODE if same_node else pynvml.NVML_TOPOLOGY_SYSTEM)
    shared = _shared(a.path, b.path)
    if not shared:
        return int(pynvml.NVML_TOPOLOGY_HOSTBRIDGE)
    below = max(len(a.path), len(b.path)) - shared
    return int(pynvml.NVML_TOPOLOGY_SINGLE if below <= 1 else pynvml.NVML_TOPOLOGY_MULTIPLE)


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """Length of the common start of two paths."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))
