"""Recordings: what a machine's NVML answered, and the host files beside it, in one JSON file.

A recording holds the answers to all calls that were made while it was taken, errors
included; replayed, the same calls give the same answers anywhere. It may come from
anybody, so nothing in it is trusted.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Literal

import msgspec

from discovery.anonymous import anonymous_calls
from discovery.errors import BadInput
from discovery.recorded_host import HostFiles, read_host_files, tree_of
from discovery.simulator import host_tree
from discovery.simulator.calls import Call, Token, call, key, unfit
from discovery.simulator.kinds import SUCCESS, Arguments, Nvml
from discovery.simulator.loader import Load, loading, put_under_pynvml
from discovery.simulator.structs import Value
from discovery.simulator.table import TABLE, Entry
from discovery.simulator.versioned import decode, schema_in

SCHEMA: Literal["gpuscape-recording/1"] = "gpuscape-recording/1"


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine, as the calls of one run saw it. Its host's name is not in it."""

    schema: Literal["gpuscape-recording/1"] = SCHEMA
    library: bool = True
    """False: there was no NVML library to load."""
    anonymous: bool = False
    """What tells this machine from all others is made up."""
    calls: tuple[Call, ...] = ()
    """One for each entry point and input, in the order they were first asked."""
    host: HostFiles = HostFiles()


def capture(read: Callable[[], None], host_root: Path) -> Recording:
    """Run ``read``, which makes pynvml calls, and record their answers and the host's files.

    ``read`` initialises NVML by itself; sessions that were open before are not
    recorded. Raises what ``read`` raises. pynvml is as before in any case.
    """
    tape = _Tape()
    undo = put_under_pynvml(tape.loader(loading()))
    try:
        read()
    finally:
        undo()
    return Recording(
        library=tape.library, calls=tuple(tape.calls.values()), host=read_host_files(host_root)
    )


def anonymise(recording: Recording) -> Recording:
    """The same machine with other serials, UUIDs, board ids and fabric clusters.

    Equal ones stay equal; nothing leads back to the true ones, not even a guess.
    """
    calls = anonymous_calls(recording.calls)
    return msgspec.structs.replace(recording, calls=calls, anonymous=True)


def save(recording: Recording, path: Path) -> None:
    """Write a recording. Raises BadInput where that cannot be."""
    body = msgspec.json.format(msgspec.json.encode(recording), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    except OSError as error:
        raise BadInput(f"cannot write the recording {path}: {error.strerror}") from error


def load(path: Path) -> Recording:
    """Read a recording. Raises BadInput that names the file, line and key, and the fix."""
    recording = decode(_bytes(path), str(path), Recording, SCHEMA)
    for number, one in enumerate(recording.calls):
        if why := unfit(one):
            raise BadInput(f"{path}: calls[{number}]: {why}")
    tree_of(recording.host, str(path))
    return recording


def schema_of(path: Path) -> str | None:
    """The schema a file names, None where it names none. Raises BadInput where it is no JSON."""
    return schema_in(_bytes(path), str(path))


def restore_host(recording: Recording, root: Path) -> None:
    """Write the recorded host files below a root.

    Raises BadInput where the directory holds anything but a host tree of ours.
    """
    try:
        host_tree.write(tree_of(recording.host, "recording"), root)
    except OSError as error:
        raise BadInput(f"the recorded host files contradict each other: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


class _Tape:
    """What was answered so far; threads may share it. Also the book of its handles."""

    def __init__(self) -> None:
        self.library = True
        self.calls: dict[bytes, Call] = {}
        self._tokens: dict[int, Token] = {0: Token(0)}
        self._lock = threading.Lock()

    def loader(self, load_real: Load) -> Load:
        """A loader for pynvml that loads the real library behind a proxy."""

        def load_proxy(name: str) -> _Proxy:
            self.library = False
            library = load_real(name)
            self.library = True
            return _Proxy(library, self)

        return load_proxy

    def note(self, entry: Entry, inputs: tuple[Value, ...], args: Arguments, code: int) -> None:
        """Keep an answer in place of an older one, unless that said more."""
        outputs = entry.read(args, self) if code == SUCCESS else ()
        newest = call(entry, inputs, code, outputs)
        at = key(entry, inputs)
        with self._lock:
            before = self.calls.get(at)
            if before is None or before.says_less or not newest.says_less:
                self.calls[at] = newest

    def handle(self, pointer: int) -> Token:
        """The token of a pointer; a new one for a new pointer."""
        with self._lock:
            return self._tokens.setdefault(pointer, Token(len(self._tokens)))

    def pointer(self, handle: Hashable) -> int:
        """Nothing is ever written by a recorder."""
        raise NotImplementedError(handle)


class _Proxy:
    """A loaded library whose answers are noted; what the table lacks passes through unseen."""

    def __init__(self, library: object, tape: _Tape) -> None:
        self._library = library
        self._tape = tape

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(self._library, name)
        entry = TABLE.get(name)
        if entry is None or entry.text or entry.waits:
            return real
        return _noted(real, entry, self._tape)


def _noted(real: Callable[..., int], entry: Entry, tape: _Tape) -> Callable[..., int]:
    def function(*args: object) -> int:
        try:
            inputs = entry.decode(args, tape)  # before the call, which may overwrite them
        except (Nvml, ctypes.ArgumentError):  # NULL or a version the table lacks
            return real(*args)
        code = real(*args)
        tape.note(entry, inputs, args, code)
        return code

    return function
