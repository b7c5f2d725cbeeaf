# SPDX-License-Identifier: Apache-2.0
"""The DCGM metric families this agent can serve: each declared once, in the order they appear.

Names, types, units and the behaviour under MIG are dcgm-exporter's, so that dashboards
and alerts keep working; the help texts are our own. Source: dcgm-exporter's
``default-counters.csv``; field ids and names in DCGM 4.6.1's ``dcgm_fields.h``, levels in
4.6.0's ``dcgm_fields.cpp``.
"""

from __future__ import annotations

from dataclasses import replace

from exporters.dcgm import (
    catalog_board,
    catalog_clocks,
    catalog_device,
    catalog_errors,
    catalog_links,
    catalog_profiling,
)
from exporters.dcgm.catalog_labels import LABEL_ROWS
from exporters.dcgm.dcgm_family import AnyFamily, Counted, DcgmFamily, Paired
from exporters.dcgm.peer.peer_counters import default_kinds
from exporters.dcgm.peer.peer_releases import DEFAULT_RELEASE
from exporters.prometheus_text import MetricType

__all__ = [
    "CATALOG",
    "COUNTED",
    "DEFAULT_FAMILIES",
    "DEFAULT_LABELS",
    "LABEL_ROWS",
    "default_families",
]

CATALOG: tuple[DcgmFamily, ...] = tuple(
    sorted(
        (
            *catalog_board.FAMILIES,
            *catalog_clocks.FAMILIES,
            *catalog_device.FAMILIES,
            *catalog_errors.FAMILIES,
            *catalog_links.FAMILIES,
            *catalog_profiling.FAMILIES,
        ),
        key=lambda family: family.field,
    )
)
COUNTED: tuple[Counted | Paired, ...] = (*catalog_errors.COUNTED, *catalog_links.PAIRED)
"""dcgm-exporter's own, which are no fields of DCGM: they have several series for one device."""


def default_families(release: str) -> tuple[AnyFamily, ...]:
    """The families that a release of dcgm-exporter serves by default, with its types."""
    kinds = default_kinds(release)
    return tuple(
        replace(family, kind=MetricType(kinds[family.name]))
        for family in CATALOG
        if family.name in kinds
    )


DEFAULT_FAMILIES = default_families(DEFAULT_RELEASE)

DEFAULT_LABELS = tuple(row for row in LABEL_ROWS if row.name in default_kinds(DEFAULT_RELEASE))
"""Labels of every release: they are the same in all."""
