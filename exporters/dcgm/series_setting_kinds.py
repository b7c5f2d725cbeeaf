# SPDX-License-Identifier: Apache-2.0
"""Kinds of setting that shape DCGM series: which devices, whose names, which label. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from base.settings.setting_kinds import SettingKind, matching
from exporters.dcgm.selection import Level, parse_selection

DEVICES = SettingKind(
    metavar="f|g[:IDS]|i[:IDS]|g+i",
    expects=(
        f"{Level.FLEXIBLE}, {Level.GPUS}, {Level.INSTANCES}, g+i, or letters with ids: g:0,2-4+i"
    ),
    parse=parse_selection,
)

_LABELS: Mapping[str, Literal["hostname", "Hostname"] | None] = {
    "hostname": "hostname",
    "Hostname": "Hostname",
    "none": None,
}
HOSTNAME_LABEL = SettingKind(
    metavar="hostname|Hostname|none",
    expects="hostname, Hostname or none",
    parse=_LABELS.__getitem__,
    form="|".join(_LABELS),
)

PREFIX = matching(
    "TEXT", "what a metric's name may begin with: letters, digits and _", r"[A-Za-z_][A-Za-z0-9_]*"
)
