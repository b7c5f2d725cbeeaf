# SPDX-License-Identifier: Apache-2.0
"""A contradiction in a machine's description, with its place."""

from __future__ import annotations

from dataclasses import dataclass

from base.yaml_places import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A contradiction: its place in the description, and a text with the fix."""

    place: Place
    text: str
