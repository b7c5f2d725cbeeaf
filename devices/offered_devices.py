# SPDX-License-Identifier: Apache-2.0
"""Devices that a node offers, by resource, from the file that the agent writes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from api.device_exchange import DeviceExchange, ExchangedGpu, ExchangedMigDevice, ExchangedVerdict
from api.mig_resources import GPU_RESOURCE, MigStrategy, mig_resource
from devices.device_health import CauseSeverity, Sighting

_SOFT: Final = frozenset({"gpu-unreadable", "gpu-hung"})
"""Causes of one reading that failed: the next one may not. All others are the driver's word."""
_ALL_CHECKS: Final = frozenset({"all", "xids"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A device of a resource: a whole GPU, or a MIG device."""

    id: str
    """Its UUID."""
    gpu: int
    """Place of its GPU in the topology annotation."""
    numa_node: int | None = None
    minor: int | None = None
    """N in ``/dev/nvidiaN`` of its GPU."""
    capabilities: tuple[int, ...] = ()
    """N in ``/dev/nvidia-caps/nvidia-capN``; empty for a whole GPU."""
    severity: CauseSeverity = CauseSeverity.NONE
    reason: str = ""
    presumed: bool = False
    """Nobody read whether its GPU is divided: it is a device of the resource if it was one."""

    def sighting(self, reading: int) -> Sighting:
        """What this reading says of its health."""
        return Sighting(reading=reading, severity=self.severity, reason=self.reason)


def offered_devices(
    exchange: DeviceExchange, strategy: MigStrategy, ignored: Collection[str] = ()
) -> Mapping[str, tuple[OfferedDevice, ...]]:
    """Resource to its devices, by GPU and then by instance.

    With ``none`` each GPU is a device, whatever its MIG mode; with ``mixed`` MIG devices are
    devices of their profile's resource, and a GPU in MIG mode is none. MIG devices that share
    their GPU instance have no resource, as with NVIDIA's plugin. A GPU of which nobody read whether
    it is divided is presumed to be whole. ``ignored``: content of DP_DISABLE_HEALTHCHECKS, numbers
    of XIDs or ``all``.
    """
    resources = defaultdict[str, list[OfferedDevice]](list)
    for gpu in exchange.gpus:
        if strategy is MigStrategy.NONE or not gpu.mig_enabled:
            presumed = strategy is not MigStrategy.NONE and gpu.mig_enabled is None
            device = replace(_device(gpu, None, ignored), presumed=presumed)
            resources[GPU_RESOURCE].append(device)
            continue
        instances = (device for device in gpu.mig_devices if "c." not in device.profile)
        for mig in sorted(instances, key=lambda mig: (mig.gpu_instance, mig.compute_instance)):
            resources[mig_resource(mig.profile)].append(_device(gpu, mig, ignored))
    return {resource: tuple(devices) for resource, devices in resources.items()}


def _device(
    gpu: ExchangedGpu, mig: ExchangedMigDevice | None, ignored: Collection[str]
) -> OfferedDevice:
    verdicts = gpu.verdicts if mig is None else (*gpu.verdicts, *mig.verdicts)
    severity, reason = _worst(verdicts, ignored)
    return OfferedDevice(
        id=gpu.uuid if mig is None else mig.uuid,
        gpu=gpu.index,
        numa_node=gpu.numa,
        minor=gpu.minor,
        capabilities=() if mig is None else mig.capability_minors or (),
        severity=severity,
        reason=reason,
    )


def _worst(
    verdicts: Iterable[ExchangedVerdict], ignored: Collection[str]
) -> tuple[CauseSeverity, str]:
    """The worst severity of these causes with its reason; of equals the first."""
    if not _ALL_CHECKS.isdisjoint(ignored):
        return CauseSeverity.NONE, ""
    rated = [
        (_severity(verdict), verdict.reason)
        for verdict in verdicts
        if verdict.reason.removeprefix("xid-") not in ignored
    ]
    severity, reason = max(rated, key=lambda pair: pair[0], default=(CauseSeverity.NONE, ""))
    return severity, reason if severity else ""


def _severity(verdict: ExchangedVerdict) -> CauseSeverity:
    """A degraded device works, so that it is handed out."""
    if verdict.health == "unhealthy":
        return CauseSeverity.SOFT if verdict.reason in _SOFT else CauseSeverity.FATAL
    return CauseSeverity.UNKNOWN if verdict.health == "unknown" else CauseSeverity.NONE
