# SPDX-License-Identifier: Apache-2.0
"""Reads errors of GPUs and NVSwitches from records of the kernel log. Pure.

The log holds text of anybody who is root, and names of processes within the driver's own lines.
So only records of the kernel itself count (who writes to /dev/kmsg cannot claim to be it), and what
they say has to stand at their beginning.
Sources: Documentation/ABI/testing/dev-kmsg of Linux; krcReportXid in kernel_rc.c and
NVSWITCH_PRINT_SXID in common_nvswitch.h of NVIDIA's open kernel modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from discovery.bus_id import normal_bus_id
from discovery.reader.protocol import XidSeen
from exporters.gpuscape.switch_errors import Severity

_RECORD = re.compile(rb"(\d{1,4}),\d{1,20},-?\d{1,20},[^;\n]{0,128};([^\n]{0,1024})")
_FACILITY_SHIFT = 3
_KERNEL = 0
"""Facility that only the kernel's own messages have. Source: devkmsg_write in printk.c."""

_XID = re.compile(
    rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    rb"(?: GPU-I:(\d{1,3}))?(?: GPU-CI:(\d{1,3}))?\): (\d{1,5}),"
)
_RECOVERED = re.compile(
    rb"[^(]*\([^)]*\): 154, GPU recovery action changed"
    rb" from 0x[0-9a-fA-F]{1,8} \([^()]*\) to 0x0 \("
)
"""The driver no longer asks for anything to be done. Source: lines that users have published in
issues of NVIDIA/open-gpu-kernel-modules; XID 154 in NVIDIA's XID catalogue."""
_SXID = re.compile(
    rb"nvidia-nvswitch\d{1,3}: SXid "
    rb"\(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)\): (\d{1,5}), (.*)"
)
_SEVERITY = re.compile(rb"(Fatal|Non-fatal|Correctable),(?: Link (\d{1,3})\b)?")
_DETAILS = (b"Severity ", b"Data {")
"""Further lines of an error that has had its own. Source: error_nvswitch.c."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidSeen:
    """An NVSwitch reported an error."""

    bus_id: str
    code: int
    severity: Severity
    link: int | None = None


def seen_in(record: bytes) -> XidSeen | SxidSeen | None:
    """The error in one record of /dev/kmsg; None for the many records without one."""
    match = _RECORD.match(record)
    if match is None or int(match[1]) >> _FACILITY_SHIFT != _KERNEL:
        return None
    message = match[2]
    if xid := _XID.match(message):
        return _xid(xid, recovered=_RECOVERED.match(message) is not None)
    if sxid := _SXID.match(message):
        return _sxid(sxid)
    return None


def _xid(match: re.Match[bytes], *, recovered: bool) -> XidSeen | None:
    code = int(match[4])
    if code == 0:
        return None
    return XidSeen(
        bus_id=normal_bus_id(match[1].decode("ascii")),
        code=code,
        gpu_instance_id=_number(match[2]),
        compute_instance_id=_number(match[3]),
        recovered=recovered,
    )


def _sxid(match: re.Match[bytes]) -> SxidSeen | None:
    text = match[3]
    if text.startswith(_DETAILS):
        return None
    named = _SEVERITY.match(text)
    return SxidSeen(
        bus_id=normal_bus_id(match[1].decode("ascii")),
        code=int(match[2]),
        severity=Severity(named[1].decode("ascii").lower()) if named else Severity.UNTOLD,
        link=_number(named[2]) if named else None,
    )


def _number(digits: bytes | None) -> int | None:
    return None if digits is None else int(digits)
