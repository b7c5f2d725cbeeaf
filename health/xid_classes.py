# SPDX-License-Identifier: Apache-2.0
"""Health of a GPU after XID errors, by their codes: one documented table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from health.health_verdict import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class XidClass:
    """How XID errors with these codes count."""

    codes: frozenset[int]
    health: Health
    meaning: str
    source: str


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
        meaning="A contained memory error: its process ended, the GPU goes on working.",
        source=_ALERTS,
    ),
    XidClass(
        codes=frozenset({48, 62, 64, 74, 79, 95, 119, 120}),
        health=Health.UNHEALTHY,
        meaning=(
            "The GPU or its links failed. Degraded while the driver reports recovery action 0:"
            " nothing has to be done."
        ),
        source=_ALERTS,
    ),
)
"""A code in no class counts as degraded: the device plugin takes it for fatal, alert rules
pass it over."""


def xid_health(code: int, *, recovered: bool) -> Health:
    """Health of a GPU after an XID that is not over.

    ``recovered``: the driver reports that no recovery action is needed (any longer).
    """
    healths = (xid_class.health for xid_class in XIDS if code in xid_class.codes)
    health = next(healths, Health.DEGRADED)
    return min(health, Health.DEGRADED) if recovered else health
