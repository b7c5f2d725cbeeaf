# SPDX-License-Identifier: Apache-2.0
"""Health of GPUs by one documented table.

:data:`RULES` and :data:`XIDS` are the table: the documentation is generated from
them. A GPU's health is the worst of the rules it meets, a node's the worst of its
GPUs. A GPU that does not answer for one fact is not ill for that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from api.fabric_kind import FabricKind
from discovery.model import GpuSnapshot, GpuState, NodeSnapshot, Reason
from labelers.groups.labelled_gpus import answering


class Health(IntEnum):
    """Health of a GPU or node, from best to worst."""

    HEALTHY = 0
    UNKNOWN = 1
    DEGRADED = 2  # works, and needs attention
    UNHEALTHY = 3  # work on it fails, or will

    @property
    def word(self) -> str:
        """The health as a label value."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthVerdict:
    """Health of a GPU or node with its cause."""

    health: Health
    reason: str = ""
    """Short word, legal as a label value; empty when healthy."""
    bus_id: str | None = None
    """Bus id of the GPU that the verdict is about; None for the whole node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """A row of the health table: when it holds, the GPU is no better than ``health``."""

    reason: str
    health: Health
    holds: Callable[[GpuSnapshot, NodeSnapshot], bool]
    meaning: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class XidClass:
    """How XID errors with these codes count."""

    codes: frozenset[int]
    health: Health
    meaning: str
    source: str


def _recovery(*actions: int) -> Callable[[GpuSnapshot, NodeSnapshot], bool]:
    return lambda gpu, _: gpu.recovery_action in actions


def _is_forbidden(gpu: GpuSnapshot) -> bool:
    gap = gpu.gap("state")
    return gap is not None and gap.reason is Reason.FORBIDDEN


def _fabric_failed(gpu: GpuSnapshot, _: NodeSnapshot) -> bool:
    return gpu.fabric is not None and gpu.fabric.state == 3 and gpu.fabric.status != 0


def _fabric_unfinished(gpu: GpuSnapshot, _: NodeSnapshot) -> bool:
    return gpu.fabric is not None and gpu.fabric.state in (1, 2)


def _fabric_unhealthy(gpu: GpuSnapshot, _: NodeSnapshot) -> bool:
    """Whether the fabric's health mask reports a problem.

    A pair of bits is 1 for yes, 2 for no; the configuration is right at 0 (unknown) or 1.
    """
    mask = None if gpu.fabric is None else gpu.fabric.health_mask
    if mask is None:
        return False
    pairs = (mask & 3, mask >> 2 & 3, mask >> 4 & 3, mask >> 6 & 3)
    return 1 in pairs or (mask >> 8 & 0xF) > 1


def _active_links(gpu: GpuSnapshot) -> int:
    return sum(link.active is True for link in gpu.links)


def _has_dead_links(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> bool:
    """Whether the GPU has fewer active links than another of its model in a mesh or switch.

    Not checked on bridged cards, which may stand alone by intent; nor with MIG on,
    which takes links down on Ampere; nor on a GPU that did not report all its links.
    """
    linked = snapshot.topology.kind in (FabricKind.MESH, FabricKind.SWITCH)
    complete = bool(gpu.links) and all(link.active is not None for link in gpu.links)
    if not linked or gpu.mig_enabled or not complete:
        return False
    peers = [
        _active_links(peer)
        for peer in answering(snapshot)
        if peer.model == gpu.model and not peer.mig_enabled
    ]
    return _active_links(gpu) < max(peers, default=0)


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

RULES: tuple[HealthRule, ...] = (
    HealthRule(
        reason="gpu-lost",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.LOST,
        meaning="The GPU fell off the bus or needs a reset.",
        source=_NVML_STATE,
    ),
    HealthRule(
        reason="gpu-hung",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.HUNG,
        meaning="A driver call to the GPU did not return.",
        source=_NVML_STATE,
    ),
    HealthRule(
        reason="gpu-forbidden",
        health=Health.UNKNOWN,
        holds=lambda gpu, _: gpu.state is GpuState.UNREADABLE and _is_forbidden(gpu),
        meaning="The agent lacks the right or the device node to ask the GPU.",
        source=_NVML_STATE,
    ),
    HealthRule(
        reason="gpu-unreadable",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.state is GpuState.UNREADABLE and not _is_forbidden(gpu),
        meaning="The GPU is on the bus, but the driver gives no handle or identity.",
        source=_NVML_STATE,
    ),
    HealthRule(
        reason="recovery-reset",
        health=Health.UNHEALTHY,
        holds=_recovery(1, 6),
        meaning="The driver asks for a reset of the GPU or its bus.",
        source=_ACTION,
    ),
    HealthRule(
        reason="recovery-reboot",
        health=Health.UNHEALTHY,
        holds=_recovery(2, 7),
        meaning="The driver asks for a reboot of the node.",
        source=_ACTION,
    ),
    HealthRule(
        reason="recovery-imex",
        health=Health.UNHEALTHY,
        holds=_recovery(5),
        meaning="The driver asks for a recovery of the IMEX domain.",
        source=_ACTION,
    ),
    HealthRule(
        reason="row-remap-failed",
        health=Health.UNHEALTHY,
        holds=lambda gpu, _: gpu.remapped_rows is not None and gpu.remapped_rows.failed,
        meaning="Broken memory could not be replaced by spare rows: the GPU is to be replaced.",
        source=_ROWS,
    ),
    HealthRule(
        reason="fabric-failed",
        health=Health.UNHEALTHY,
        holds=_fabric_failed,
        meaning="Registration with the NVLink fabric ended in an error.",
        source=_FABRIC,
    ),
    HealthRule(
        reason="recovery-drain",
        health=Health.DEGRADED,
        holds=_recovery(3, 4),
        meaning="The driver asks to move work away from the GPU or its peers.",
        source=_ACTION,
    ),
    HealthRule(
        reason="row-remap-pending",
        health=Health.DEGRADED,
        holds=lambda gpu, _: gpu.remapped_rows is not None and gpu.remapped_rows.pending,
        meaning="Memory rows wait for a reset to be replaced by spares.",
        source=_ROWS,
    ),
    HealthRule(
        reason="page-retirement-pending",
        health=Health.DEGRADED,
        holds=lambda gpu, _: gpu.retired_pages_pending is True,
        meaning="Memory pages wait for a reset to be taken out of use.",
        source="nvmlDeviceGetRetiredPagesPendingStatus; NVIDIA Dynamic Page Retirement",
    ),
    HealthRule(
        reason="fabric-unfinished",
        health=Health.DEGRADED,
        holds=_fabric_unfinished,
        meaning="Registration with the NVLink fabric has not started or not ended.",
        source=_FABRIC,
    ),
    HealthRule(
        reason="fabric-unhealthy",
        health=Health.DEGRADED,
        holds=_fabric_unhealthy,
        meaning="The fabric reports lost bandwidth, bad routes, timeouts or a wrong setup.",
        source=_FABRIC,
    ),
    HealthRule(
        reason="nvlink-inactive",
        health=Health.DEGRADED,
        holds=_has_dead_links,
        meaning="It has fewer active NVLinks than another GPU of its model in this node.",
        source="nvmlDeviceGetNvLinkState",
    ),
    HealthRule(
        reason="nvlink-asymmetric",
        health=Health.DEGRADED,
        holds=_has_half_links,
        meaning="NVLinks to another GPU are up at one end only.",
        source="nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemotePciInfo_v2",
    ),
)
"""In order of precedence within one health."""

_ALERTS = "nvidia_gpu_exporter's alert rules, pull request 474"

XIDS: tuple[XidClass, ...] = (
    XidClass(
        codes=frozenset({13, 31, 43, 45, 68, 109}),
        health=Health.HEALTHY,
        meaning="Caused by an application.",
        source="NVIDIA k8s-device-plugin v0.20.0, internal/rm/health.go",
    ),
    XidClass(
        codes=frozenset({63, 92, 154}),
        health=Health.HEALTHY,
        meaning="For information: rows remapped, many corrected errors, recovery action changed.",
        source=f"{_ALERTS}; NVIDIA XID catalogue",
    ),
    XidClass(
        codes=frozenset({94}),
        health=Health.DEGRADED,
        meaning="A memory error that was contained: its process ended, the GPU goes on.",
        source=_ALERTS,
    ),
    XidClass(
        codes=frozenset({48, 62, 64, 74, 79, 95, 119, 120}),
        health=Health.UNHEALTHY,
        meaning=(
            "The GPU or its links failed. Degraded while the driver reports recovery action 0:"
            " it asks for nothing to be done."
        ),
        source=_ALERTS,
    ),
)
"""A code in no class counts as degraded: the device plugin takes it for fatal, alert rules
pass it over."""

_RANK = {rule.reason: rank for rank, rule in enumerate(RULES)}


def gpu_verdict(gpu: GpuSnapshot, snapshot: NodeSnapshot) -> HealthVerdict:
    """The worst verdict on a GPU; ``snapshot`` has the peers it is compared with."""
    verdicts = [
        HealthVerdict(health=rule.health, reason=rule.reason, bus_id=gpu.bus_id)
        for rule in RULES
        if rule.holds(gpu, snapshot)
    ]
    for xid in gpu.xids:
        if xid.over:
            continue
        health = xid_health(xid.code, recovered=gpu.recovery_action == 0)
        if health is not Health.HEALTHY:
            reason = f"xid-{xid.code}"
            verdicts.append(HealthVerdict(health=health, reason=reason, bus_id=gpu.bus_id))
    healthy = HealthVerdict(health=Health.HEALTHY, bus_id=gpu.bus_id)
    return min(verdicts, key=severity, default=healthy)


def xid_health(code: int, *, recovered: bool) -> Health:
    """Health of a GPU after an XID that is not over.

    ``recovered``: the driver reports that no recovery action is needed (any longer).
    """
    healths = (xid_class.health for xid_class in XIDS if code in xid_class.codes)
    health = next(healths, Health.DEGRADED)
    return min(health, Health.DEGRADED) if recovered else health


def severity(verdict: HealthVerdict) -> tuple[int, int]:
    """Sort key: the worst first, among equals by the table; reasons not in it come last."""
    return (-verdict.health, _RANK.get(verdict.reason, len(_RANK)))
