# SPDX-License-Identifier: Apache-2.0
"""Published releases of dcgm-exporter, oldest first, and spans of them. Pure.

Flags, variables and counters that a release has are rows of two tables, each with the span of
releases that it was seen in: :mod:`cli.dcgm_exporter.dcgm_flags` and
:mod:`exporters.dcgm.peer.peer_counters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TAGS: Final[Mapping[str, str]] = {
    "4.5.0": "4.4.0-4.5.0",
    "4.5.2": "4.4.1-4.5.2",
    "4.6.0": "4.4.1-4.6.0",
    "4.7.0": "4.4.2-4.7.0",
    "4.7.1": "4.4.2-4.7.1",
    "4.8.0": "4.5.1-4.8.0",
    "4.8.1": "4.5.2-4.8.1",
    "4.8.2": "4.5.3-4.8.2",
    "4.8.3": "4.6.0-4.8.3",
    "4.8.4": "4.6.1-4.8.4",
}
"""Release to its tag in NVIDIA/dcgm-exporter, which begins with the version of DCGM.

The rows of the newest two were read at the commits 7ad58324b444 and 8dc9e11b50dd.
"""

RELEASES: Final = tuple(TAGS)
DEFAULT_RELEASE: Final = RELEASES[-1]
"""The release that is served where no other is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSpan:
    """Consecutive releases, both ends included. Raises ValueError for an unknown release."""

    first: str = RELEASES[0]
    last: str = RELEASES[-1]

    def __post_init__(self) -> None:
        _place(self.first), _place(self.last)

    def __contains__(self, release: str) -> bool:
        return _place(self.first) <= _place(release) <= _place(self.last)


def _place(release: str) -> int:
    if release not in RELEASES:
        raise ValueError(f"no known release of dcgm-exporter: {release}")
    return RELEASES.index(release)


EVERY_RELEASE: Final = ReleaseSpan()
SINCE_4_8_3: Final = ReleaseSpan(first="4.8.3")
SINCE_4_8_4: Final = ReleaseSpan(first="4.8.4")
BEFORE_4_8_3: Final = ReleaseSpan(last="4.8.2")
BEFORE_4_8_4: Final = ReleaseSpan(last="4.8.3")


def hostname_label(release: str) -> str:
    """Label in which a release writes the node's name.

    Source: dcgm-exporter at each tag, ``internal/pkg/rendermetrics``.
    """
    return "hostname" if release in SINCE_4_8_3 else "Hostname"
