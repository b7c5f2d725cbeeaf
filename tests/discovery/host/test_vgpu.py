# SPDX-License-Identifier: Apache-2.0
"""vGPU facts from hand-built configuration spaces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.host.vgpu import CONFIG_BYTES, vgpu
from discovery.model import Vgpu


def driver_record(version: bytes = b"460.16", branch: bytes = b"r460_00") -> bytes:
    """The record of id 0: 22 bytes."""
    return bytes([0, 22]) + version.ljust(10, b"\0") + branch.ljust(10, b"\0")


def capability(records: bytes, signature: bytes = b"VF") -> bytes:
    """A vendor-specific capability at the end of its list."""
    body = signature + records
    return bytes([0x09, 0x00, 3 + len(body)]) + body


def config(*capabilities: tuple[int, bytes], first: int = 0x40, status: int = 0x10) -> bytes:
    """A configuration space with these bytes at these offsets."""
    space = bytearray(CONFIG_BYTES)
    space[0x06], space[0x34] = status, first
    for at, content in capabilities:
        space[at : at + len(content)] = content
    return bytes(space)


def test_a_vgpu_names_its_hosts_driver() -> None:
    """The second capability of the list; a record of another kind comes before the driver's."""
    other = bytes([0x05, 0x60, 0x00])
    records = bytes([7, 4, 0xAA, 0xBB]) + driver_record()

    found = vgpu(config((0x40, other), (0x60, capability(records))))

    assert found == Vgpu(present=True, host_driver_version="460.16", host_driver_branch="r460_00")


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(config(), id="no capability"),
        pytest.param(config((0x40, capability(driver_record(), b"XX"))), id="other signature"),
        pytest.param(config((0x40, capability(driver_record())), status=0), id="list switched off"),
        pytest.param(config((0x00, capability(driver_record())), first=0), id="empty list"),
        pytest.param(config((0x40, b"\x05\x40\x00")), id="looping list"),
        pytest.param(config((0xFE, b"\x09\x00"), first=0xFE), id="capability past the end"),
        pytest.param(b"\xff" * CONFIG_BYTES, id="fallen off the bus"),
    ],
)
def test_anything_else_is_no_vgpu(space: bytes) -> None:
    assert vgpu(space) == Vgpu(present=False)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="none"),
        pytest.param(bytes([7, 4, 0xAA, 0xBB]), id="only another kind"),
        pytest.param(bytes([7, 0]) + driver_record(), id="one of length 0"),
        pytest.param(driver_record()[:-1], id="cut short"),
    ],
)
def test_a_vgpu_without_a_whole_driver_record_is_still_present(records: bytes) -> None:
    assert vgpu(config((0x40, capability(records)))) == Vgpu(present=True)


@given(st.binary(min_size=CONFIG_BYTES, max_size=CONFIG_BYTES))
def test_whatever_the_bytes_are_it_ends(space: bytes) -> None:
    listed = bytearray(space)
    listed[0x06] |= 0x10

    assert vgpu(bytes(listed)).present in (True, False)
