# SPDX-License-Identifier: Apache-2.0
"""Errors of NVSwitches, where the kernel log is read. Pure."""

from __future__ import annotations

from collections.abc import Callable

from exporters.gpuscape.gpuscape_family import GpuscapeFamily, Series
from exporters.gpuscape.node_view import NodeView
from exporters.gpuscape.switch_errors import Sxid

_LABELS = ("pci_bus_id", "sxid", "severity")
_LOG = "lines of NVSwitch's driver in /dev/kmsg, where reading it is switched on"


def _sxids(read: Callable[[Sxid], float]) -> Callable[[NodeView], Series]:
    def series(node: NodeView) -> Series:
        for sxid in node.sxids:
            yield (sxid.bus_id, str(sxid.code), sxid.severity.replace("-", "_")), read(sxid)

    return series


FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_nvswitch_errors_total",
        help="SXid errors of an NVSwitch since this agent started, by the switch's bus id.",
        labels=_LABELS,
        series=_sxids(lambda sxid: sxid.count),
        source=_LOG,
    ),
    GpuscapeFamily(
        name="gpuscape_nvswitch_error_last_timestamp_seconds",
        help="When the newest SXid error of this kind came, Unix time.",
        labels=_LABELS,
        series=_sxids(lambda sxid: sxid.last_seen_seconds),
        source=_LOG,
    ),
)
