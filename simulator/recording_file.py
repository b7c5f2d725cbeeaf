# SPDX-License-Identifier: Apache-2.0
"""Recordings: what a machine's NVML answered, and the host files with it, in one JSON file.

A recording holds the answers to all calls that were made while it was taken, errors
included; replayed, the same calls give the same answers anywhere. Handles stand in it as
numbers in the order they were first seen, all else as it was. It may come from anybody,
so nothing in it is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec
import pynvml

from base.errors import BadInput
from base.files import ONLY_WRITING, cannot_write, read_bytes
from discovery.bus_id import normal_bus_id
from discovery.nvml_abi.argument_kinds import ArgumentKind, In
from discovery.nvml_abi.c_values import Value
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.description.document import MOST_BYTES, decode
from simulator.host.file_tree import HostTree, write_host_tree

SCHEMA: Literal["gpuscape-recording/1"] = "gpuscape-recording/1"

_TOPS = ("sys", "proc")

_MADE_ANEW = (pynvml.c_nvmlEventSet_t, pynvml.c_nvmlGpmSample_t)
"""Types of handles to objects that a process makes for itself."""


@dataclass(frozen=True, slots=True)
class Token:
    """Number that stands for a handle in a recording; 0 is NULL."""

    number: int


class RecordedCall(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A call and its answer, by the names in the table."""

    entry: str
    inputs: dict[str, Any] = {}
    code: int = 0
    outputs: dict[str, Any] = {}
    """Empty unless the code is 0."""

    @property
    def says_less(self) -> bool:
        """Whether the call got the length of a list without its items."""
        if self.code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            return True
        return any(isinstance(output, list) and None in output for output in self.outputs.values())


class HostFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Paths and targets stand without a leading slash, from the host's root."""

    texts: dict[str, str] = {}
    """Path to content."""
    configs: dict[str, str] = {}
    """Path to PCI configuration space in hexadecimal, as much as could be read."""
    links: dict[str, str] = {}
    """Path to target."""


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine, as the calls of one run saw it. The name of its host is not in it."""

    schema: Literal["gpuscape-recording/1"] = SCHEMA
    library: bool = True
    """False: there was no NVML library to load."""
    anonymous: bool = False
    """Identities of this machine are made up."""
    calls: tuple[RecordedCall, ...] = ()
    """Calls, one for each entry point and input, in the order in which they were first made."""
    host: HostFiles = HostFiles()


def encode(recording: Recording) -> bytes:
    """A recording as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=1)


def save_recording(recording: Recording, path: Path, *, replace: bool = False) -> None:
    """Write a recording into a new file, or in place of what is there.

    Raises BadInput where that cannot be; a file that was begun does not stay.
    """
    try:
        with path.open("wb" if replace else "xb") as file:
            try:
                file.write(encode(recording))
                file.flush()
            except BaseException:
                if not replace:
                    path.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise BadInput(cannot_write(f"the recording {path}", error)) from error


def load_recording(path: Path) -> Recording:
    """Read a recording. Raises BadInput that names the file, line and key, and the fix."""
    recording = decode(read_bytes(path, most_bytes=MOST_BYTES), str(path), Recording, SCHEMA)
    for number, recorded in enumerate(recording.calls):
        if why := unfit(recorded):
            raise BadInput(f"{path}: calls[{number}]: {why}")
    _tree_of(recording.host, str(path))
    return recording


def restore_host(recording: Recording, root: Path) -> None:
    """Write the recorded host files below a root.

    Raises BadInput where the directory holds anything but a host tree of ours, OSError where the
    disk is full or read-only.
    """
    try:
        write_host_tree(_tree_of(recording.host, "recording"), root)
    except OSError as error:
        if error.errno in ONLY_WRITING:
            raise
        raise BadInput(f"the recorded host files contradict each other: {error}") from error


# the calls in it


def recorded_call(
    entry: EntryPoint, inputs: Sequence[Value], code: int, outputs: Sequence[Value]
) -> RecordedCall:
    """A call as it is recorded."""
    return RecordedCall(
        entry=entry.name,
        inputs=_named(entry.inputs, inputs),
        code=code,
        outputs=_named(entry.outputs, outputs) if code == pynvml.NVML_SUCCESS else {},
    )


def call_key(entry: EntryPoint, inputs: Sequence[Value]) -> bytes:
    """Key that calls with the same inputs share.

    Event sets and GPM sample buffers are not distinguished, since a replay makes its own, and
    bus ids may be spelled in any way.
    """
    taking = (kind for kind in entry.kinds if kind.takes)
    canonical = [
        _canonical(kind, _plain(value)) for kind, value in zip(taking, inputs, strict=True)
    ]
    return msgspec.json.encode([entry.name, *canonical])


def unfit(recorded: RecordedCall) -> str | None:
    """Why a call cannot be one of this table's; None where it can."""
    entry = TABLE.get(recorded.entry)
    if entry is None:
        return f"this version knows no NVML entry point {recorded.entry!r}: use a newer one"
    outputs = entry.outputs if recorded.code == pynvml.NVML_SUCCESS else ()
    if (set(recorded.inputs), set(recorded.outputs)) != (set(entry.inputs), set(outputs)):
        expected = ", ".join((*entry.inputs, *outputs)) or "nothing"
        return f"{recorded.entry} goes with {expected}: record anew"
    return None


def _tree_of(files: HostFiles, source: str) -> HostTree:
    """The files as they are to stand below a root again.

    Raises BadInput where a path leads out of it or a configuration space is not
    hexadecimal: a recording may come from anybody.
    """
    paths = (*files.texts, *files.configs, *files.links)
    for path in (*paths, *files.links.values()):
        parts = PurePosixPath(path).parts
        if not parts or parts[0] not in _TOPS or ".." in parts:
            raise BadInput(f"{source}: the path {path!r} leads out of /sys and /proc: record anew")
    for path in paths:  # written through a link, a relative link would lead elsewhere
        if any(str(above) in files.links for above in PurePosixPath(path).parents):
            raise BadInput(f"{source}: the path {path!r} leads through a link: record anew")
    try:
        configs = {path: bytes.fromhex(text) for path, text in files.configs.items()}
    except ValueError as error:
        raise BadInput(f"{source}: host.configs is not hexadecimal: record anew") from error
    texts = {path: text.encode() for path, text in files.texts.items()}
    return HostTree(files=texts | configs, links=dict(files.links))


def _named(names: Sequence[str], values: Sequence[Value]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in zip(names, values, strict=True)}


def _plain(value: Value) -> Value:
    if isinstance(value, Token):
        return value.number
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _canonical(kind: ArgumentKind, value: Value) -> Value:
    if isinstance(kind, In) and kind.ctype in _MADE_ANEW:
        return None
    if kind.name == "busId":
        try:
            return normal_bus_id(value)
        except ValueError:
            return value
    return value
