# SPDX-License-Identifier: Apache-2.0
"""Kinds of setting that shape DCGM series: which release, devices, names and labels. Pure."""

from __future__ import annotations

from base.settings.setting_kinds import SettingKind, choice_kind, pattern_kind
from exporters.dcgm.peer.peer_releases import RELEASES
from exporters.dcgm.selection import Level, parse_selection

DEVICES = SettingKind(
    metavar="f|g[:IDS]|i[:IDS]|g+i",
    expects=(
        f"{Level.FLEXIBLE}, {Level.GPUS}, {Level.INSTANCES}, g+i, or letters with ids: g:0,2-4+i"
    ),
    parse=parse_selection,
)

NO_LABEL = "none"
HOSTNAME_LABEL = choice_kind("hostname", "Hostname", NO_LABEL)

COMPAT_RELEASE = choice_kind(*RELEASES)

CONFIG_MAP = pattern_kind(
    "NAMESPACE:NAME", "namespace:name of a ConfigMap", r"[a-z0-9][a-z0-9-]*:[a-z0-9][a-z0-9.-]*"
)

PREFIX = pattern_kind(
    "TEXT", "what a metric's name may begin with: letters, digits and _", r"[A-Za-z_][A-Za-z0-9_]*"
)
