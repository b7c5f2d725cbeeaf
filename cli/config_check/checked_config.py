# SPDX-License-Identifier: Apache-2.0
"""The result of one check: what is refused, what is noted, and what the configuration means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cli.config_check.config_kinds import ConfigKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFault:
    """A reason to refuse a configuration, or a note about it."""

    line: int | None
    """Line of the file, from 1; None where no line is to blame."""
    reason: str
    """Key, reason and fix, as they stand behind the place in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedResource:
    """A resource as the Node offers it."""

    resource: str
    """Name of the resource on the Node."""
    replicas: int
    """Shares of each device; 1 where it is not shared."""
    sharing: str
    """``time-slicing``, ``mps`` or ``none``."""
    one_share_a_request: bool
    amount: int | None = None
    """Devices that the machine offers under this name; None where no machine was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginMeaning:
    """Meaning of a device plugin configuration: the resources and labels of a Node."""

    offers: tuple[OfferedResource, ...]
    labels: Mapping[str, str] | None
    """Labels that are there, or are so, because of this file; None where no machine was read."""
    mig_strategy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLayout:
    """A named configuration of a MIG file, and the GPU models on which it fits."""

    name: str
    layouts: tuple[str, ...]
    """The layout of each entry, in their order: ``2x 1g.10gb, 3g.40gb``."""
    fits: tuple[str, ...]
    """GPU models on which every entry that concerns them fits."""
    misfits: Mapping[str, str]
    """GPU model to the reason, where an entry without a filter does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersMeaning:
    """Meaning of a counters file: the families, labels and settings that it selects."""

    families: tuple[tuple[str, str], ...]
    """Name and type, in the order of the file."""
    labels: tuple[str, ...]
    settings: Mapping[str, str]
    """Flags of dcgm-exporter that a YAML configuration sets, and their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMeaning:
    """A rule for one label."""

    key: str
    values: tuple[str, ...]
    """Values of the label, in the order in which they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebMeaning:
    """Meaning of a web config file, without its secrets."""

    tls: str
    """Versions of TLS, or ``off``."""
    client_certificate: str
    users: tuple[str, ...]
    headers: tuple[str, ...]
    requests: str
    """The limit of requests, or ``unlimited``."""


Meaning = (
    PluginMeaning
    | tuple[CheckedLayout, ...]
    | CountersMeaning
    | tuple[RuleMeaning, ...]
    | WebMeaning
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedConfig:
    """A configuration with its faults, its notes and what it means."""

    file: str
    entry: str
    """Object and key of a ConfigMap's entry; empty for a file of its own."""
    kind: ConfigKind
    refused: tuple[ConfigFault, ...] = ()
    """Why gpuscape, or the program that the file was made for, does not take it."""
    notes: tuple[ConfigFault, ...] = ()
    """Notes on entries that do nothing here, or something else than they seem to do."""
    meaning: Meaning | None = None
    """Meaning of the configuration; None where it cannot be read so far."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is refused."""
        return not self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedText:
    """A text that was not checked, and why."""

    file: str
    entry: str
    reason: str
