# SPDX-License-Identifier: Apache-2.0
"""Record a machine: what its NVML answers while somebody reads it, and its host's files."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from discovery.nvml_abi.argument_kinds import SUCCESS, Arguments, Nvml
from discovery.nvml_abi.c_values import Value
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.driver.library import Load, loading, put_under_pynvml
from simulator.recording.host_files import read_host_files
from simulator.recording_file import (
    RecordedCall,
    Recording,
    Token,
    call_key,
    recorded_call,
)


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


class _Tape:
    """Answers so far; threads may share it. Also the book of its handles."""

    def __init__(self) -> None:
        self.library = True
        self.calls: dict[bytes, RecordedCall] = {}
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

    def note(
        self, entry: EntryPoint, inputs: tuple[Value, ...], args: Arguments, code: int
    ) -> None:
        """Keep an answer in place of an older one, unless that had more in it."""
        outputs = entry.read(args, self) if code == SUCCESS else ()
        newest = recorded_call(entry, inputs, code, outputs)
        key = call_key(entry, inputs)
        with self._lock:
            before = self.calls.get(key)
            if before is None or before.says_less or not newest.says_less:
                self.calls[key] = newest

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


def _noted(real: Callable[..., int], entry: EntryPoint, tape: _Tape) -> Callable[..., int]:
    def function(*args: object) -> int:
        try:
            inputs = entry.decode(args, tape)  # before the call, which may overwrite them
        except (Nvml, ctypes.ArgumentError):  # NULL or a version the table lacks
            return real(*args)
        code = real(*args)
        entry.restore(args, inputs)
        tape.note(entry, inputs, args, code)
        return code

    return function
