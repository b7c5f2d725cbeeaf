"""PCI configuration space of a simulated device: what is in it is what readers look for."""

from __future__ import annotations

import struct

SIZE_BYTES = 256
"""Conventional configuration space, as sysfs gives it for these devices."""

BRIDGE = 0x060400
"""Class code of a PCI-to-PCI bridge."""

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
