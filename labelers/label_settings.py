# SPDX-License-Identifier: Apache-2.0
"""Settings that all labelers share, and what the device plugin's file adds to them."""

from __future__ import annotations

from dataclasses import dataclass

from api.mig_resources import MigStrategy
from labelers.groups.sharing import NOTHING_SHARED, Sharing
from labelers.label_rules import LabelRule


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """Settings of all labelers."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    sharing: Sharing = NOTHING_SHARED
    timestamp_seconds: int | None = None
    """Start of this process, Unix seconds; None: no timestamp label."""
    rules: tuple[LabelRule, ...] = ()
    """For labels under the admin's own prefixes; each key once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What the device plugin's configuration file sets for labels; None where it sets nothing."""

    sharing: Sharing = NOTHING_SHARED
    mig_strategy: MigStrategy | None = None
    no_timestamp: bool | None = None
    machine_type_file: str | None = None
