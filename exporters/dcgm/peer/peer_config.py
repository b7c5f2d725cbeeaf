# SPDX-License-Identifier: Apache-2.0
"""What the YAML configuration of dcgm-exporter sets; it has one since 4.8.3. Pure.

:mod:`exporters.dcgm.peer.peer_config_reader` reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CONFIG_MAP: Final = re.compile(rb"^[\"']?kind[\"']?[ \t]*:[ \t]*[\"']?ConfigMap\b", re.MULTILINE)
_VERSION: Final = re.compile(rb"^version[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredFlag:
    """A value of the file that a flag of dcgm-exporter sets too."""

    flag: str
    """Without dashes."""
    text: str
    """Text in the form that the flag takes."""
    place: str
    """File, line and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """Entry of ``metrics.fields``."""

    line: int
    """From 1."""
    name: str
    kind: str
    help_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """What a configuration sets."""

    flags: tuple[ConfiguredFlag, ...] = ()
    rows: tuple[MetricRow, ...] = ()
    """Entries of ``metrics.fields``, in the order of the file; empty without them."""
    rows_place: str = ""
    """File, line and key of ``metrics.fields``."""
    file: str = ""
    notes: tuple[str, ...] = ()
    """What has no effect here: sentences that name file, line and key."""


def is_configuration(content: bytes) -> bool:
    """Whether a file is such a configuration, and no counters file: it has a version."""
    return _VERSION.search(content) is not None


def is_config_map(content: bytes) -> bool:
    """Whether a file is a ConfigMap's manifest, and not what one holds."""
    return _CONFIG_MAP.search(content) is not None
