# SPDX-License-Identifier: Apache-2.0
"""PCI bus ids: their one form within gpuscape, NVML's form, and their order. Pure."""

from __future__ import annotations


def normal_bus_id(text: str) -> str:
    """Bus id as sysfs writes it, from any spelling NVML or a person uses.

    ``00000000:1B:00.0``, ``0000:1B:00.0`` and ``1b:00.0`` all give ``0000:1b:00.0``;
    a domain beyond four digits keeps its digits (VMD and some clouds have them).
    Raises ValueError on anything else.
    """
    *domain, bus, rest = text.strip().lower().split(":")
    device, _, function = rest.partition(".")
    number = int(domain[0], 16) if domain else 0
    if len(domain) > 1:
        raise ValueError(f"not a PCI bus id: {text!r}")
    return f"{number:04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"


def long_bus_id(bus_id: str) -> str:
    """Bus id as NVML writes it: ``00000000:1B:00.0``, eight-digit domain, upper case."""
    domain, _, rest = bus_id.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def bus_order(bus_id: str) -> tuple[int, ...]:
    """Sort key of a normalised bus id, for PCI bus order; text sorts domain 10000 too early."""
    return tuple(int(part, 16) for part in bus_id.replace(".", ":").split(":"))
