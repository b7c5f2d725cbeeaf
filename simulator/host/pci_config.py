# SPDX-License-Identifier: Apache-2.0
"""PCI configuration space of a simulated device: with the parts that readers use."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

SIZE_BYTES = 256
"""Conventional configuration space, as sysfs gives it for these devices."""

BRIDGE = 0x060400
"""Class code of a PCI-to-PCI bridge."""

_DEVICE_LINES, _BRIDGE_LINES = 13, 17
_MEMORY_32, _MEMORY_64 = 0x00040200, 0x0014220C  # memory; 64 bits wide and prefetchable too

_STATUS_CAPABILITIES = 0x10
_POWER_MANAGEMENT, _VENDOR_SPECIFIC, _PCI_EXPRESS = 0x01, 0x09, 0x10
_POWER_AT, _EXPRESS_AT, _VENDOR_AT = 0x60, 0x78, 0xC0

_VGPU_SIGNATURE = b"VF"
_SOME_RECORD = bytes((1, 4, 0, 0))  # readers must step over records that are not theirs
_HOST_DRIVER_RECORD = 0
_HOST_DRIVER_BYTES = 10


def config_space(
    *,
    device_id: int,
    subsystem_id: int,
    pci_class: int,
    vgpu_host_driver: tuple[str, str] | None = None,
) -> bytes:
    """256 bytes: ids, class, capabilities; ids hold the device in the upper 16 bits.

    ``vgpu_host_driver`` is version and branch of the host's driver, at most ten
    bytes each; it makes the device a vGPU.
    Source: PCI Local Bus Specification 3.0, section 6.1; the vGPU's capability as
    gpu-feature-discovery reads it (internal/vgpu in NVIDIA/k8s-device-plugin).
    """
    space = bytearray(SIZE_BYTES)
    struct.pack_into("<HHHH", space, 0x00, *_split(device_id), 0, _STATUS_CAPABILITIES)
    space[0x09:0x0C] = pci_class.to_bytes(3, "little")
    if pci_class == BRIDGE:
        space[0x0E] = 1  # header type; it has no subsystem id where devices have theirs
    else:
        struct.pack_into("<HH", space, 0x2C, *_split(subsystem_id))
    space[0x34] = _POWER_AT
    space[_POWER_AT : _POWER_AT + 2] = bytes((_POWER_MANAGEMENT, _EXPRESS_AT))
    space[_EXPRESS_AT] = _PCI_EXPRESS
    if vgpu_host_driver is not None:
        capability = _vgpu_capability(*vgpu_host_driver)
        space[_EXPRESS_AT + 1] = _VENDOR_AT
        space[_VENDOR_AT : _VENDOR_AT + len(capability)] = capability
    return bytes(space)


def resource_lines(pci_class: int, place: str, window_mib: int) -> Iterator[str]:
    """Lines of a function's ``resource`` file: start, end and flags of each region.

    A GPU has registers in BAR 0, its memory's window in BAR 1 and a third region in
    BAR 3; other functions have BAR 0 alone. A bridge has four lines more. Where
    ``place`` puts a region is made up, and the same each time.
    Source: Linux, Documentation/PCI/sysfs-pci.rst and include/linux/ioport.h.
    """
    bars = {0: (16, _MEMORY_32)}
    if window_mib:
        bars |= {1: (window_mib, _MEMORY_64), 3: (32, _MEMORY_64)}
    lines = _BRIDGE_LINES if pci_class == BRIDGE else _DEVICE_LINES
    for number in range(lines):
        size, flags = bars.get(number, (0, 0))
        if pci_class == BRIDGE or not size:
            size = flags = 0
        slot = zlib.crc32(place.encode()) % 0x4000
        low, high = 0x80 + slot % 0x40 << 24, 0x100 + slot << 40 | number << 38
        start = 0 if not size else low if flags == _MEMORY_32 else high
        end = start + (size << 20) - 1 if size else 0
        yield f"{start:#018x} {end:#018x} {flags:#018x}"


def _split(combined: int) -> tuple[int, int]:
    """Vendor and device of a combined id, in the order of the registers."""
    return combined & 0xFFFF, combined >> 16


def _vgpu_capability(version: str, branch: str) -> bytes:
    """Id, next, length, signature, then records of id, length, data; id 0 is the host driver's."""
    texts = (text.encode().ljust(_HOST_DRIVER_BYTES, b"\0") for text in (version, branch))
    data = b"".join(texts)
    record = bytes((_HOST_DRIVER_RECORD, 2 + len(data))) + data
    body = _VGPU_SIGNATURE + _SOME_RECORD + record
    return bytes((_VENDOR_SPECIFIC, 0, 3 + len(body))) + body
