"""How far up the PCIe tree two devices of a machine meet."""

from __future__ import annotations

import pynvml

from discovery.simulator.machine import Gpu, Nic


def common_ancestor(a: Gpu | Nic, b: Gpu | Nic) -> int:
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
