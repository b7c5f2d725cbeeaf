# SPDX-License-Identifier: Apache-2.0
"""The tables of dcgm-exporter's releases, and of types that changed from one to the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from cli.dcgm_exporter.dcgm_flags import FLAGS
from exporters.dcgm.peer.peer_counters import counters_of
from exporters.dcgm.peer.peer_releases import RELEASES, TAGS
from tools.markdown import table


def peer_release_table() -> str:
    """Each release with what it has that the one before had not."""
    rows, before = [], _words(RELEASES[0])
    for release in RELEASES:
        words = _words(release)
        new = "" if release == RELEASES[0] else _listed(words - before)
        rows.append((release, f"`{TAGS[release]}`", str(len(words)), new, _listed(before - words)))
        before = words
    return table(("release", "tag", "flags", "new", "gone"), rows)


def _words(release: str) -> set[str]:
    return {flag.name for flag in FLAGS if release in flag.releases}


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`--{word}`" for word in sorted(words))


def peer_type_table() -> str:
    """Families whose type in dcgm-exporter's own counters file changed."""
    rows = []
    for earlier, release in itertools.pairwise(RELEASES):
        before, now = _kinds(earlier), _kinds(release)
        rows += [
            (f"`{name}`", before[name][0], kind, release, "yes" if served else "")
            for name, (kind, served) in sorted(now.items())
            if name in before and before[name][0] != kind
        ]
    return table(("family", "type before", "type", "since", "served by default"), rows)


def _kinds(release: str) -> dict[str, tuple[str, bool]]:
    """Name to type, and whether it is served by default; a row that is served wins."""
    rows = sorted(counters_of(release), key=lambda row: row.served)
    return {row.name: (row.kind, row.served) for row in rows}
