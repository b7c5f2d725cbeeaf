# SPDX-License-Identifier: Apache-2.0
"""What counts as an error in the kernel log, and what only looks like one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gpu_errors.kernel_records import SxidSeen, seen_in
from discovery.reader.protocol import XidSeen
from exporters.gpuscape.switch_errors import Severity


def record(message: str, priority: int = 3, more: str = "-") -> bytes:
    """A record as /dev/kmsg gives it."""
    return f"{priority},1187,5140900,{more};{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0000\n".encode()


def xid(
    code: int, bus_id: str = "0000:1b:00.0", *, recovered: bool = False, **instance: int
) -> XidSeen:
    return XidSeen(bus_id=bus_id, code=code, recovered=recovered, **instance)


BUS = "0000:04:00.0"

RECORDS = [
    ("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", xid(79)),
    ("NVRM: Xid (PCI:0000:1B:00): 31, pid=251, name=python3, Ch 00000008, intr 0", xid(31)),
    ("NVRM: Xid (PCI:0000:1b:00): 13, pid='<unknown>', name=<unknown>, Graphics SM", xid(13)),
    ("NVRM: Xid (PCI:0000:1b:00): 45, pid=1, name=a, Ch 1 caused by previous Xid 149", xid(45)),
    (
        "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0)",
        xid(149),
    ),
    ("NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 43, pid=7, name=a, b", xid(43, gpu_instance_id=5)),
    (
        "NVRM: Xid (PCI:0000:1b:00 GPU-I:12 GPU-CI:01): 43, pid=7, name=a, b",
        xid(43, gpu_instance_id=12, compute_instance_id=1),
    ),
    (
        "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 (GPU Reset"
        " Required) to 0x0 (None)",
        xid(154, recovered=True),
    ),
    (
        "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1"
        " (GPU Reset Required)",
        xid(154),
    ),
    (
        "NVRM: Xid (PCI:0000:1b:00): 45, GPU recovery action changed from 0x1 (a) to 0x0 (None)",
        xid(45),
    ),
    ("NVRM: Xid (0000:1b:00): 8, Channel 00000001", xid(8)),
    ("NVRM: Xid (PCI:00010000:1b:00): 48, DBE", xid(48, "10000:1b:00.0")),
    ("NVRM: Xid (PCI:0000:1b:00.0): 48, DBE", xid(48)),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ",
        SxidSeen(bus_id=BUS, code=22013, severity=Severity.NON_FATAL, link=44),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 12028, Fatal, Link 32 egress non-posted PRIV",
        SxidSeen(bus_id=BUS, code=12028, severity=Severity.FATAL, link=32),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 11012, Correctable, Link 03 single bit",
        SxidSeen(bus_id=BUS, code=11012, severity=Severity.CORRECTABLE, link=3),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 10005, Fatal, Timed out while waiting",
        SxidSeen(bus_id=BUS, code=10005, severity=Severity.FATAL),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 10004, NVSWITCH Temperature 99C | TSENSE",
        SxidSeen(bus_id=BUS, code=10004, severity=Severity.UNTOLD),
    ),
    # further lines of an error that was told already
    (
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-",
        None,
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b}", None),
    # other lines
    ("NVRM: GPU at PCI:0000:1b:00: GPU-efbdfde9-5798-a6e7-4c46-12518fa15375", None),
    ("NVRM: Xid (PCI:0000:1b:00): 0, none", None),
    ("NVRM: Xid (PCI:0000:1b:00): 79", None),
    ("NVRM: Xid (PCI:0000:1b:00): 790000, x", None),
    ("NVRM: Xid (PCI:0000:1b:zz): 79, x", None),
    ("NVRM: Xid (PCI:1b:00): 79, x", None),
    ("NVRM: Xid (PCI:0000:1b:00 GPU-I:1234): 79, x", None),
    ("audit: comm=NVRM: Xid (PCI:0000:1b:00): 79, x", None),
    (" NVRM: Xid (PCI:0000:1b:00): 79, x", None),
    ("nvidia-nvswitchX: SXid (PCI:0000:04:00.0): 12028, Fatal, x", None),
    ("xnvidia-nvswitch0: SXid (PCI:0000:04:00.0): 12028, Fatal, x", None),
    ("", None),
]


@pytest.mark.parametrize(("message", "event"), RECORDS)
def test_the_drivers_lines_are_errors_and_others_are_not(
    message: str, event: XidSeen | SxidSeen | None
) -> None:
    assert seen_in(record(message)) == event


def test_further_fields_before_the_message_are_no_matter() -> None:
    assert seen_in(record(RECORDS[0][0], more="-,caller=T1187")) == xid(79)


@pytest.mark.parametrize("priority", [11, 12, 30, 190])
def test_what_a_process_wrote_into_the_log_is_no_error(priority: int) -> None:
    assert seen_in(record(RECORDS[0][0], priority=priority)) is None


def test_an_error_in_a_further_line_of_a_record_is_none() -> None:
    assert seen_in(record(f"hello\n {RECORDS[0][0]}\n{RECORDS[0][0]}")) is None


@pytest.mark.parametrize(
    "damaged",
    [b"", b";", b"3,1;", b"3,1,2,-", b"x,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, x", b"\xff" * 9000],
)
def test_a_damaged_record_is_no_error(damaged: bytes) -> None:
    assert seen_in(damaged) is None


@given(st.binary(max_size=300))
def test_anything_may_stand_in_the_log(message: bytes) -> None:
    prefix = b"3,1,2,-;NVRM: Xid (PCI:0000:1b:00"
    for text in (message, prefix + message, b"3,1,2,-;nvidia-nvswitch0: SXid (PCI:0" + message):
        event = seen_in(text)
        assert event is None or re.fullmatch(r"[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.[0-7]", event.bus_id)
