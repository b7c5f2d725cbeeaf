# SPDX-License-Identifier: Apache-2.0
"""Every kind of argument has memory that both ends measure alike."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml as nv
import pytest

from discovery.nvml_abi.argument_kinds import ArgumentKind
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.entry_point_table import TABLE
from simulator.clibrary.parameter_memory import MemoryShape, Parameter, length, parameters


def test_every_entry_point_has_as_many_parameters_as_its_kinds_cover() -> None:
    for entry in TABLE.values():
        covered = sum(len(kind.parameters) for kind in entry.kinds)
        assert len(parameters(entry)) == covered, entry.name


def test_shapes_follow_from_kinds() -> None:
    """One of each, worked out by hand from nvml.h."""
    assert parameters(TABLE["nvmlDeviceGetName"])[1:] == (
        Parameter(shape=MemoryShape.SIZED, size=1, counter=2),
        Parameter(ctype=nv.c_uint),
    )
    assert parameters(TABLE["nvmlDeviceGetMemoryInfo"])[1] == Parameter(
        shape=MemoryShape.FIXED, size=24
    )
    assert parameters(TABLE["nvmlDeviceGetMemoryInfo_v2"])[1] == Parameter(
        shape=MemoryShape.VERSIONED, versions={nv.nvmlMemory_v2: 40}
    )
    assert parameters(TABLE["nvmlDeviceGetGpuInstances"])[2:] == (
        Parameter(shape=MemoryShape.GIVEN, size=8, counter=3),
        Parameter(shape=MemoryShape.FIXED, size=4),
    )
    assert parameters(TABLE["nvmlDeviceGetRetiredPages_v2"])[2:] == (
        Parameter(shape=MemoryShape.FIXED, size=4),
        Parameter(shape=MemoryShape.COUNTED, size=8, counter=2),
        Parameter(shape=MemoryShape.COUNTED, size=8, counter=2),
    )


def test_a_kind_that_is_not_known_is_an_error() -> None:
    """It would be forwarded without its memory."""

    @dataclass(frozen=True, slots=True)
    class Other(ArgumentKind):
        pass

    with pytest.raises(TypeError, match="nothing is known of the C memory of"):
        parameters(EntryPoint("nvmlOther", (Other("other"),)))


@pytest.mark.parametrize(
    ("parameter", "content", "expected"),
    [
        (Parameter(shape=MemoryShape.TEXT), b"abc", 3),
        (Parameter(shape=MemoryShape.FIXED, size=24), b"", 24),
        (Parameter(shape=MemoryShape.SIZED, size=8, counter=0), b"", 24),
        (Parameter(shape=MemoryShape.COUNTED, size=8, counter=1), b"", 16),
        (Parameter(shape=MemoryShape.COUNTED, size=8, counter=0), b"", 0),
        (Parameter(shape=MemoryShape.GIVEN, size=8, counter=1), b"", 0),
        (Parameter(shape=MemoryShape.VERSIONED, versions={2: 40}), b"\2\0\0\0", 40),
        (Parameter(shape=MemoryShape.VERSIONED, versions={2: 40}), b"\3\0\0\0", 4),
        (
            Parameter(shape=MemoryShape.TAILED, size=8, head=16, count_offset=4, max_items=3),
            b"....\3\0\0\0",
            40,
        ),
        (
            Parameter(shape=MemoryShape.TAILED, size=8, head=16, count_offset=4, max_items=3),
            b"....\4\0\0\0",
            16,
        ),
    ],
)
def test_a_length_follows_from_what_came(
    parameter: Parameter, content: bytes, expected: int
) -> None:
    """Words say 3; the second pointer leads to a 2, the first is no pointer."""
    assert length(parameter, content, [3, 0x1000], [None, b"\2\0\0\0"]) == expected


def test_too_little_to_tell_is_an_error() -> None:
    with pytest.raises(ValueError, match="no number at 4 in 3 bytes"):
        length(Parameter(shape=MemoryShape.TAILED, count_offset=4), b"abc", [], [])
