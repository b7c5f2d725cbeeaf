# SPDX-License-Identifier: Apache-2.0
"""Nodes whose MIG layout is there, and whose device plugin does not list its devices. Pure.

NVIDIA's device plugin lists MIG devices only when it starts. After a reboot it may start before the
layout is back, and waits for ever. Its agent says what the node is to offer, and since when it has
found the layout on the GPUs: a plugin that started before is restarted, one that started later has
seen the devices, and another restart would not help.
"""

from __future__ import annotations

from dataclasses import dataclass

from base.text import rfc3339
from fleet.gpu_pod import GpuPod
from fleet.mig_node import MigNode
from fleet.slot_gate import FleetView
from fleet.status.node_layout import unlisted_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedDevices:
    """Resources of a node of which the device plugin lists too few devices."""

    node: str
    uid: str
    resources: tuple[str, ...]
    """Resources of which fewer devices are listed than the layout has, sorted."""
    plugins: tuple[GpuPod, ...]
    """Pods of the device plugin that started before the layout was found; empty: none did."""
    settles: bool
    """Whether a pod of the device plugin is leaving, or has not started yet."""

    @property
    def is_hopeless(self) -> bool:
        """Whether another restart would not help: the plugin has started since the layout came."""
        return not self.plugins and not self.settles


def unlisted_devices(view: FleetView) -> dict[str, UnlistedDevices]:
    """Unlisted devices by node, without nodes in change, with a request, or not available."""
    recorded = {slot.record.node for slot in view.slots if slot.record is not None}
    found = (_unlisted_on(view, node) for name, node in view.nodes.items() if name not in recorded)
    return {devices.node: devices for devices in found if devices is not None}


def _unlisted_on(view: FleetView, node: MigNode) -> UnlistedDevices | None:
    status, missing = node.status, unlisted_resources(node.status, dict(node.capacity))
    if node.permit_text is not None or node.request is not None or node.away is not None:
        return None
    if status is None or not missing:
        return None
    since = rfc3339.unix_seconds(status.current_since)
    plugins = [pod for pod in view.pods.get(node.name, ()) if pod.is_plugin]
    staying = [pod for pod in plugins if not pod.is_leaving]
    return UnlistedDevices(
        node=node.name,
        uid=node.uid,
        resources=missing,
        plugins=tuple(pod for pod in staying if _is_before(pod.started_at, since)),
        settles=staying != plugins or any(pod.started_at is None for pod in staying),
    )


def _is_before(started_at: float | None, since: float | None) -> bool:
    """Whether a pod is known to have started no later; times are whole seconds."""
    return started_at is not None and since is not None and started_at <= since
