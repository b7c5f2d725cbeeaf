# SPDX-License-Identifier: Apache-2.0
"""Health of a GPU by what it reports: one documented table. Pure.

A GPU's health is the worst of the rules it meets. A GPU that does not answer for one fact is not
ill for that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from api.fabric_kind import FabricKind
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, NvidiaFacts, Reason
from health.expected_links import expected_links, links_up
from health.health_verdict import Health, HealthCause


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRule(HealthCause):
    """A cause that one GPU shows; the snapshot of its node has the GPUs it is compared with."""

    holds: Callable[[GpuSnapshot, NodeSnapshot], bool]


def _of_nvidia(
    holds: Callable[[NvidiaFacts], bool],
) -> Callable[[GpuSnapshot, NodeSnapshot], bool]:
    """A condition on the facts that only NVIDIA GPUs have."""
    return lambda gpu, _: gpu.nvidia is not None and holds(gpu.nvidia)


def _recovery(*actions: int) -> Callable[[GpuSnapshot, NodeSnapshot], bool]:
    return _of_nvidia(lambda nvidia: nvidia.recovery_action in actions)


def _is_forbidden(gpu: GpuSnapshot) -> bool:
    gap = gpu.gap("state")
    return gap is not None and gap.reason is Reason.FORBIDDEN


def _fabric_failed(nvidia: NvidiaFacts) -> bool:
    return nvidia.fabric is not None and nvidia.fabric.state == 3 and nvidia.fabric.status != 0


def _fabric_unfinished(nvidia: NvidiaFacts) -> bool:
    return nvidia.fabric is not None and nvidia.fabric.state in (1, 2)


def _fabric_unhealthy(nvidia: NvidiaFacts) -> bool:
    """Whether the fabric's health mask reports a problem.

    A pair of bits is 1 for yes, 2 for no; the configuration is right at 0 (unknown) or 1.
    """
    mask = None if nvidia.fabric is None else nvidia.fabric.health_mask
    if mask is None:
        return False
    pairs = (mask & 3, mask >> 2 & 3, mask >> 4 & 3, mask >> 6 & 3)
    return 1 in pairs or (mask >> 8 & 0xF) > 1


def _has_dead_links(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> bool:
    expected = expected_links(gpu, snapshot)
    return expected is not None and gpu.nvidia is not None and links_up(gpu.nvidia) < expected


def _has_half_links(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> bool:
    """Whether the two ends of a pair of GPUs report different numbers of links.

    Not checked behind NVSwitches: two GPUs' links end there and not at each other.
    """
    topology = snapshot.topology
    switched = topology.kind is FabricKind.SWITCH
    if switched or gpu.bus_id not in topology.gpus or gpu.mig_enabled:
        return False
    here = topology.gpus.index(gpu.bus_id)
    links_back = (row[here] for row in topology.nvlinks)
    pairs = zip(topology.nvlinks[here], links_back, strict=True)
    return any(out is not None and back is not None and out != back for out, back in pairs)


_NVML_STATE = "NVML return codes; discovery's deadlines"
_FABRIC = "nvmlDeviceGetGpuFabricInfoV: state, status, healthMask (nvml.h)"
_ROWS = "nvmlDeviceGetRemappedRows; NVIDIA GPU Memory Error Management"
_ACTION = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (nvml.h)"

GPU_RULES: tuple[GpuRule, ...] = (
    GpuRule(
        reason="gpu-lost",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.LOST,
        meaning="The GPU fell off the bus or needs a reset.",
        source=_NVML_STATE,
        fix="Reset the GPU or reboot the node; a GPU that is lost again is broken.",
        page="runbooks/GpuDown.md",
    ),
    GpuRule(
        reason="gpu-hung",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.HUNG,
        meaning="A driver call to the GPU did not return.",
        source=_NVML_STATE,
        fix="Drain the node and reboot it; a GPU that hangs again is broken.",
        page="runbooks/GpuDown.md",
    ),
    GpuRule(
        reason="gpu-forbidden",
        health=Health.UNKNOWN,
        holds=lambda gpu, _: gpu.state is GpuState.UNREADABLE and _is_forbidden(gpu),
        meaning="The agent lacks the right or the device node to read the GPU.",
        source=_NVML_STATE,
        fix="Give this process the device node and the right to open it.",
        page="runbooks/GpuscapeReadingsForbidden.md",
    ),
    GpuRule(
        reason="gpu-unreadable",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.UNREADABLE and not _is_forbidden(gpu),
        meaning="The GPU is on the bus, but the driver gives no handle or identity.",
        source=_NVML_STATE,
        fix="Search the kernel log for NVRM lines, then reset or reboot.",
        page="runbooks/GpuDown.md",
    ),
    GpuRule(
        reason="recovery-reset",
        health=Health.UNHEALTHY,
        holds=_recovery(1, 6),
        meaning="The driver asks for a reset of the GPU or its bus.",
        source=_ACTION,
        fix="Drain the GPU, then `nvidia-smi --gpu-reset -i GPU`.",
        page="runbooks/GpuRecoveryNeeded.md",
    ),
    GpuRule(
        reason="recovery-reboot",
        health=Health.UNHEALTHY,
        holds=_recovery(2, 7),
        meaning="The driver asks for a reboot of the node.",
        source=_ACTION,
        fix="Drain the node and reboot it.",
        page="runbooks/GpuRecoveryNeeded.md",
    ),
    GpuRule(
        reason="recovery-imex",
        health=Health.UNHEALTHY,
        holds=_recovery(5),
        meaning="The driver asks for a recovery of the IMEX domain.",
        source=_ACTION,
        fix="Restart the IMEX service on all nodes of its domain.",
        page="runbooks/GpuRecoveryNeeded.md",
    ),
    GpuRule(
        reason="row-remap-failed",
        health=Health.UNHEALTHY,
        holds=_of_nvidia(lambda gpu: gpu.remapped_rows is not None and gpu.remapped_rows.failed),
        meaning="Broken memory could not be replaced by spare rows: the GPU is to be replaced.",
        source=_ROWS,
        fix="Have the GPU replaced.",
        page="runbooks/GpuRowRemapFailed.md",
    ),
    GpuRule(
        reason="fabric-failed",
        health=Health.UNHEALTHY,
        holds=_of_nvidia(_fabric_failed),
        meaning="Registration with the NVLink fabric ended in an error.",
        source=_FABRIC,
        fix="Read Fabric Manager's log, restart it, reset the GPUs.",
        page="runbooks/GpuFabricFault.md",
    ),
    GpuRule(
        reason="recovery-drain",
        health=Health.DEGRADED,
        holds=_recovery(3, 4),
        meaning="The driver asks to move work away from the GPU or its peers.",
        source=_ACTION,
        fix="Move work away from the GPU, then reset it.",
        page="runbooks/GpuRecoveryNeeded.md",
    ),
    GpuRule(
        reason="row-remap-pending",
        health=Health.DEGRADED,
        holds=_of_nvidia(lambda gpu: gpu.remapped_rows is not None and gpu.remapped_rows.pending),
        meaning="Memory rows wait for a reset to be replaced by spares.",
        source=_ROWS,
        fix="Reset the GPU when nothing uses it.",
        page="runbooks/GpuRowRemapPending.md",
    ),
    GpuRule(
        reason="page-retirement-pending",
        health=Health.DEGRADED,
        holds=_of_nvidia(lambda gpu: gpu.retired_pages_pending is True),
        meaning="Memory pages wait for a reset to be taken out of use.",
        source="nvmlDeviceGetRetiredPagesPendingStatus; NVIDIA Dynamic Page Retirement",
        fix="Reset the GPU when nothing uses it.",
        page="runbooks/GpuPageRetirementPending.md",
    ),
    GpuRule(
        reason="fabric-unfinished",
        health=Health.DEGRADED,
        holds=_of_nvidia(_fabric_unfinished),
        meaning="Registration with the NVLink fabric has not started or not ended.",
        source=_FABRIC,
        fix="Check that Fabric Manager runs on the host.",
        page="runbooks/GpuFabricNotRegistered.md",
    ),
    GpuRule(
        reason="fabric-unhealthy",
        health=Health.DEGRADED,
        holds=_of_nvidia(_fabric_unhealthy),
        meaning="The fabric reports lost bandwidth, bad routes, timeouts or a wrong setup.",
        source=_FABRIC,
        fix="Search Fabric Manager's log for links and routes.",
        page="runbooks/GpuFabricFault.md",
    ),
    GpuRule(
        reason="nvlink-inactive",
        health=Health.DEGRADED,
        holds=_has_dead_links,
        meaning="It has fewer active NVLinks than another GPU of its model in this node.",
        source="nvmlDeviceGetNvLinkState",
        fix="Search the kernel log for NVLink errors, reset the GPU.",
        page="runbooks/GpuNvlinkDown.md",
    ),
    GpuRule(
        reason="nvlink-asymmetric",
        health=Health.DEGRADED,
        holds=_has_half_links,
        meaning="NVLinks to another GPU are up at one end only.",
        source="nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemotePciInfo_v2",
        fix="Reset both GPUs; a link that stays down is broken.",
        page="runbooks/GpuNvlinkDown.md",
    ),
)
"""In order of precedence within one health."""
