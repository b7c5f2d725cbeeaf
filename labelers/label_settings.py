# SPDX-License-Identifier: Apache-2.0
"""Settings that all labelers share, and what the device plugin's file adds to them."""

from __future__ import annotations

from dataclasses import dataclass

from api.mig_resources import MigStrategy
from labelers.groups.sharing import NOTHING_SHARED, Sharing, SharingStrategy
from labelers.label_rules import LabelRule


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """Settings of all labelers."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    sharing: Sharing = NOTHING_SHARED
    timestamp_seconds: int | None = None
    """Start of this process, Unix seconds; None: no timestamp label."""
    rules: tuple[LabelRule, ...] = ()
    """Rules for labels under the admin's own prefixes; each key once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOffer:
    """A resource whose devices the plugin hands out in shares."""

    resource: str
    """``nvidia.com/gpu``, ``nvidia.com/mig-1g.5gb``."""
    offered_as: str
    """Its name on the Node, which pods ask for."""
    replicas: int
    """Shares of each device; 2 or more."""
    strategy: SharingStrategy
    one_share_a_request: bool
    """A container that asks for more than one share is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """The settings of the device plugin's configuration file; None where a key is not set."""

    sharing: Sharing = NOTHING_SHARED
    mig_strategy: MigStrategy | None = None
    no_timestamp: bool | None = None
    machine_type_file: str | None = None
    offers: tuple[SharedOffer, ...] = ()
    """Shared resources in the order of the file; other resources are offered unshared."""
    ignored: tuple[str, ...] = ()
    """Settings that the plugin itself ignores: sentences that name file, line and key."""
