# SPDX-License-Identifier: Apache-2.0
"""Calls of every entry point with all kinds of arguments, and what came of each, byte for byte.

The same calls go to the Python side of the simulator and, from a process of its own
(``python raw_calls.py``), to the C library. How much memory a call touches is worked out by
neither: every pointer leads to more room than any needs, and all of it is compared.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pynvml

ROOM = 1 << 15
"""Bytes behind each pointer."""
NUMBERS = (0, 1, 2, 8, 9, 19, 64, 71)
"""Indices, links, profiles, sensors, types of events, lengths of buffers, process ids."""
MOST_COMBINATIONS = 3000
"""Of one entry point's arguments, where all of them are tried."""
FILLS = (0x00, 0xA5)
UNKNOWN_VERSION = 0x09000010
FIELDS = ((91, 0), (147, 0), (138, 1), (167, 0), (999, 0))
PLACEMENTS = ((1, 1), (2, 1), (4, 1), (5, 1), (4, 4), (0, 7))
"""Start and size."""
SMALLEST_PROFILE = 19
"""Id of 1g, but on a GPU of four slices."""
GPM_METRICS = (1, 2, 20, 999)

Outcome = list[Any]
"""Name, arguments in words, return code or text, digest of all memory it could reach."""


def outcomes(library: Any, texts: Sequence[str], *, combined: bool = False) -> list[Outcome]:
    """All calls in order. ``texts``: UUIDs, bus ids and serials to look up.

    ``combined``: each value of each argument with each of the others, where they are not too many.
    """
    return list(_Caller(library, texts, combined=combined).all())


class _Caller:
    def __init__(self, library: Any, texts: Sequence[str], *, combined: bool) -> None:
        self._library = library
        self._combined = combined
        self._texts = [text.encode("latin-1") for text in (*texts, "nonsense", "")]
        self._handles: dict[Any, list[int]] = {}

    def all(self) -> Iterator[Outcome]:
        from discovery.nvml_abi.entry_point_table import TABLE

        yield self._call(TABLE["nvmlDeviceGetCount_v2"], [self._room()])  # too early
        yield self._call(TABLE["nvmlInit_v2"], [])
        yield from self._find_handles(TABLE)
        yield from self._fields_and_metrics(TABLE)
        last = ("Destroy", "Free", "Create", "SetMigMode")
        entries = sorted(TABLE.values(), key=lambda it: it.name.endswith(last))
        for entry in entries:
            if entry.name not in ("nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown"):
                for arguments in self._variants(entry):
                    yield self._call(entry, arguments)
        yield self._call(TABLE["nvmlInitWithFlags"], [ctypes.c_uint(0)])
        for _ in range(3):
            yield self._call(TABLE["nvmlShutdown"], [])

    def _find_handles(self, table: Any) -> Iterator[Outcome]:
        """Real handles of each kind, and those that stand for nothing."""
        device = pynvml.c_nvmlDevice_t
        for index in (*range(20), 0x10000):
            yield from self._made(table["nvmlDeviceGetHandleByIndex_v2"], ctypes.c_uint(index))
        for gpu in list(self._handles.get(device, ()))[:2]:
            yield from self._life_of_an_instance(table, gpu)
            for number in range(4):
                parent = (ctypes.c_void_p(gpu), ctypes.c_uint(number))
                yield from self._made(table["nvmlDeviceGetMigDeviceHandleByIndex"], *parent)
                yield from self._made(table["nvmlDeviceGetGpuInstanceById"], *parent)
        for instance in list(self._handles.get(pynvml.c_nvmlGpuInstance_t, ()))[:2]:
            for number in range(2):
                parent = (ctypes.c_void_p(instance), ctypes.c_uint(number))
                yield from self._made(table["nvmlGpuInstanceGetComputeInstanceById"], *parent)
        yield from self._made(table["nvmlEventSetCreate"])
        for _ in range(2):
            yield from self._made(table["nvmlGpmSampleAlloc"])

    def _life_of_an_instance(self, table: Any, gpu: int) -> Iterator[Outcome]:
        """Made at a place and destroyed, with one in it; their handles are kept as any others."""
        profile, whole = ctypes.c_uint(SMALLEST_PROFILE), ctypes.c_uint(0)
        create = table["nvmlDeviceCreateGpuInstanceWithPlacement"]
        yield from self._made(create, ctypes.c_void_p(gpu), profile, _pair(5, 1)())
        for instance in list(self._handles.get(pynvml.c_nvmlGpuInstance_t, ()))[-1:]:
            cut = table["nvmlGpuInstanceCreateComputeInstanceWithPlacement"]
            yield from self._made(cut, ctypes.c_void_p(instance), whole, _pair(0, 1)())
            for compute in list(self._handles.get(pynvml.c_nvmlComputeInstance_t, ()))[-1:]:
                yield self._call(table["nvmlComputeInstanceDestroy"], [ctypes.c_void_p(compute)])
            yield self._call(table["nvmlGpuInstanceDestroy"], [ctypes.c_void_p(instance)])

    def _made(self, entry: Any, *arguments: Any) -> Iterator[Outcome]:
        room = self._room()
        outcome = self._call(entry, [*arguments, room])
        if outcome[2] == 0:
            pointer = ctypes.c_uint64.from_buffer(room).value
            kept = self._handles.setdefault(entry.kinds[-1].ctype, [])
            if pointer not in kept:
                kept.append(pointer)
        yield outcome

    def _fields_and_metrics(self, table: Any) -> Iterator[Outcome]:
        gpu = next(iter(self._handles.get(pynvml.c_nvmlDevice_t, ())), 0)
        samples = self._handles[pynvml.c_nvmlGpmSample_t]
        room = self._room()
        values = (pynvml.c_nvmlFieldValue_t * len(FIELDS)).from_buffer(room)
        for value, (field, scope) in zip(values, FIELDS, strict=True):
            value.fieldId, value.scopeId = field, scope
        count = ctypes.c_int(len(FIELDS))
        yield self._call(table["nvmlDeviceGetFieldValues"], [ctypes.c_void_p(gpu), count, room])
        for sample in samples:
            both = [ctypes.c_void_p(gpu), ctypes.c_void_p(sample)]
            yield self._call(table["nvmlGpmSampleGet"], both)
        room = self._room()
        question = pynvml.c_nvmlGpmMetricsGet_t.from_buffer(room)
        question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(GPM_METRICS)
        handle = pynvml.c_nvmlGpmSample_t
        question.sample1, question.sample2 = (ctypes.cast(each, handle) for each in samples)
        for place, metric in enumerate(GPM_METRICS):
            question.metrics[place].metricId = metric
        yield self._call(table["nvmlGpmMetricsGet"], [room])

    def _variants(self, entry: Any) -> Iterator[list[Any]]:
        """Each kind of argument with each of its values, the others in turns; and all of NULL."""
        choices = [choice for kind in entry.kinds for choice in self._choices(kind)]
        most = max((len(choice) for choice in choices), default=1)
        if self._combined and math.prod(map(len, choices)) <= MOST_COMBINATIONS:
            for combination in itertools.product(*choices):
                yield [make() for make in combination]
            return
        for turn, shift in itertools.product(range(most), range(3)):
            yield [
                choice[(turn + shift * place) % len(choice)]()
                for place, choice in enumerate(choices)
            ]
        yield [choice[-1]() for choice in choices]

    def _choices(self, kind: Any) -> Iterator[list[Any]]:
        """For each C parameter what makes a value of it; the last is NULL, or a number."""
        from discovery.nvml_abi.argument_kinds import InOut, InStruct, InText
        from discovery.nvml_abi.c_values import HANDLES

        versions = tuple(kind.versions or ()) if isinstance(kind, InOut) else ()
        for ctype in kind.parameters:
            if ctype in HANDLES:
                known = [*self._handles.get(ctype, ())][:6]
                yield [_value(ctypes.c_void_p, each) for each in (*known, 0x1234, 0)]
            elif ctype is not ctypes.c_void_p:
                yield [_value(ctype, number) for number in NUMBERS]
            elif isinstance(kind, InStruct):
                yield [*(_pair(*each) for each in PLACEMENTS), _null]
            elif isinstance(kind, InText):
                yield [*(_text(each) for each in self._texts), _null]
            else:
                first = (0, 1, 64, UNKNOWN_VERSION, *versions, pynvml.NVML_GPM_METRICS_GET_VERSION)
                known_counts = first[:3] if not versions and kind.name != "metricsGet" else first
                made = itertools.product(known_counts, FILLS[: 1 if self._combined else 2])
                yield [*(_filled(fill, start) for start, fill in made), _null]

    def _call(self, entry: Any, arguments: list[Any]) -> Outcome:
        function = getattr(self._library, entry.name)
        function.restype = ctypes.c_char_p if entry.text else ctypes.c_int
        shown = [
            "memory" if isinstance(it, ctypes.Array) else getattr(it, "value", it)
            for it in arguments
        ]
        result = function(*arguments)
        memory = hashlib.sha256()
        for argument in arguments:
            if isinstance(argument, ctypes.Array):
                memory.update(bytes(argument))
        said = result.decode() if isinstance(result, bytes) else result
        return [entry.name, repr(shown), said, memory.hexdigest()]

    @staticmethod
    def _room() -> Any:
        return ctypes.create_string_buffer(ROOM)


def _value(ctype: Any, value: int) -> Any:
    return lambda: ctype(value)


def _text(text: bytes) -> Any:
    return lambda: ctypes.c_char_p(text)


def _pair(first: int, second: int) -> Any:
    def made() -> Any:
        room = ctypes.create_string_buffer(ROOM)
        (ctypes.c_uint * 2).from_buffer(room)[:] = [first, second]
        return room

    return made


def _null() -> None:
    return None


def _filled(fill: int, start: int) -> Any:
    def made() -> Any:
        room = ctypes.create_string_buffer(bytes([fill]) * ROOM, ROOM)
        ctypes.c_uint.from_buffer(room).value = start
        return room

    return made


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    json.dump(
        outcomes(
            ctypes.CDLL("libnvidia-ml.so.1"), json.loads(sys.argv[1]), combined=len(sys.argv) > 2
        ),
        sys.stdout,
    )
