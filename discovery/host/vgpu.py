# SPDX-License-Identifier: Apache-2.0
"""Facts about vGPUs in PCI configuration space."""

from __future__ import annotations

from discovery.model import Vgpu

CONFIG_BYTES = 256
"""Conventional configuration space; without CAP_SYS_ADMIN the kernel gives the first 64 only."""

# Offsets and values of the PCI Local Bus Specification 3.0, section 6.1 and appendix H.
_STATUS = 0x06
_HAS_CAPABILITIES = 0x10
_FIRST_CAPABILITY = 0x34
_VENDOR_SPECIFIC = 0x09

# Layout of NVIDIA's vendor-specific capability on a vGPU, as gpu-feature-discovery reads it.
_VGPU_SIGNATURE = b"VF"
_VGPU_RECORDS = 5
_HOST_DRIVER_RECORD = 0
_TEXT_BYTES = 10


def vgpu(config: bytes) -> Vgpu:
    """Whether this NVIDIA function is a vGPU, and of which host driver.

    ``config`` holds at least CONFIG_BYTES. A vGPU whose capability has no whole
    driver record is present without version and branch. Whatever the bytes are,
    it ends: a broken or looping chain reads as no vGPU.
    Source: gpu-feature-discovery's rule: vendor-specific capability signed ``VF``
    at bytes 3 and 4, then records of id, length and data until one has id 0,
    which holds version and branch, ten bytes each, padded with NULs.
    """
    capability = _vendor_capability(config)
    if capability[3:_VGPU_RECORDS] != _VGPU_SIGNATURE:
        return Vgpu(present=False)
    record = _host_driver_record(capability)
    if record is None:
        return Vgpu(present=True)
    return Vgpu(
        present=True,
        host_driver_version=_text(record[:_TEXT_BYTES]),
        host_driver_branch=_text(record[_TEXT_BYTES:]),
    )


def _vendor_capability(config: bytes) -> bytes:
    """The first vendor-specific capability; empty where there is none."""
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return b""
    offset, seen = config[_FIRST_CAPABILITY], {0}
    while offset not in seen and offset + 2 < CONFIG_BYTES:
        seen.add(offset)
        kind, following, length = config[offset : offset + 3]
        if kind == _VENDOR_SPECIFIC:
            return config[offset : min(offset + length, CONFIG_BYTES)]
        offset = following
    return b""


def _host_driver_record(capability: bytes) -> bytes | None:
    """Data of the record that names the host's driver; None where it is cut short or missing."""
    offset = _VGPU_RECORDS
    while offset + 1 < len(capability):
        kind, length = capability[offset : offset + 2]
        if kind == _HOST_DRIVER_RECORD:
            data = capability[offset + 2 : offset + 2 + 2 * _TEXT_BYTES]
            return data if len(data) == 2 * _TEXT_BYTES else None
        if length == 0:
            return None
        offset += length
    return None


def _text(data: bytes) -> str:
    return data.strip(b"\0").decode("ascii", "replace")
