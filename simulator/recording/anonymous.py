# SPDX-License-Identifier: Apache-2.0
"""Recordings without the identities of their machine."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from discovery.nvml_abi.entry_point_table import TABLE
from simulator.recording_file import RecordedCall, Recording

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def anonymise(recording: Recording) -> Recording:
    """A recording of the machine with other serials, UUIDs, board ids and fabric clusters.

    Equal identities stay equal; nothing leads back to the true ones, not even a guess:
    made-up ones are numbered in the order they come. The table of entry points has
    which values are identities.
    """
    made_up = _MadeUp()
    calls = tuple(_anonymous(call, made_up) for call in recording.calls)
    return replace(recording, calls=calls, anonymous=True)


class _MadeUp:
    """Identities for identities, of the same kind and form."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def instead_of(self, value: Any) -> Any:
        """Another text, number or list of 16 bytes; an empty or all-zero one says nothing."""
        if isinstance(value, list):
            return list(self._uuid(UUID(bytes=bytes(value))).bytes) if any(value) else value
        if isinstance(value, int):
            return self._number(value) if value else value
        if _UUID.search(value):
            return _UUID.sub(lambda match: str(self._uuid(UUID(match[0]))), value)
        return f"{self._number(value):0{len(value)}d}" if value else value

    def _uuid(self, uuid: UUID) -> UUID:
        return UUID(int=self._number(uuid), version=4)

    def _number(self, identity: object) -> int:
        return self._known.setdefault(identity, 1 + len(self._known))


def _anonymous(call: RecordedCall, made_up: _MadeUp) -> RecordedCall:
    inputs, outputs = dict(call.inputs), dict(call.outputs)
    for kind in TABLE[call.entry].kinds:
        for values in (inputs, outputs):
            if kind.name in values and kind.identity:
                values[kind.name] = _replaced(values[kind.name], kind.identity, made_up)
    return replace(call, inputs=inputs, outputs=outputs)


def _replaced(value: Any, identity: bool | tuple[str, ...], made_up: _MadeUp) -> Any:
    if isinstance(identity, bool):
        return made_up.instead_of(value)
    fields = {name: made_up.instead_of(value[name]) for name in identity if name in value}
    return value | fields
