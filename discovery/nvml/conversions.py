# SPDX-License-Identifier: Apache-2.0
"""Conversions of NVML's answers to base units; each checks the range that is possible at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from discovery.bus_id import normal_bus_id
from discovery.model import Mode
from discovery.nvml_terms import Virtualization

Number = TypeVar("Number", int, float)


class Garbage(ValueError):
    """An answer outside what is possible; its text says which."""


class Unusable(Exception):
    """An answer that is possible and of no use; its text says why."""


NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""NVML_VALUE_NOT_AVAILABLE in 32 and 64 bits, which some getters return with success."""


def whole(top: int) -> Callable[[Any], int]:
    """An integer from 0 to ``top``."""

    def convert(value: Any) -> int:
        try:
            number = int(value.value if hasattr(value, "value") else value)
        except OverflowError as error:  # infinity
            raise Garbage(str(error)) from error
        if number in NOT_AVAILABLE or not 0 <= number <= top:
            raise Garbage(f"{number} is not in 0..{top}")
        return number

    return convert


def between(least: Number, greatest: Number) -> Callable[[Any], Number]:
    """A number within these bounds, as NVML has it; NaN is in none."""

    def convert(value: Any) -> Number:
        if not least <= value <= greatest:
            raise Garbage(f"{value} is not in {least:g}..{greatest:g}")
        number: Number = value
        return number

    return convert


def printable_text(room: int) -> Callable[[Any], str]:
    """Printable text that leaves space for its end in a buffer of ``room`` bytes; never empty."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise Garbage(f"not a printable text: {value!r:.80}")
        if len(value.encode()) >= room:
            raise Garbage(f"a text without an end: {value!r:.80}")
        return value.strip()

    return convert


def bus_id(value: Any) -> str:
    """The bus id in an nvmlPciInfo_t, normalised; pynvml gives it as bytes or str by version."""
    raw = value.busId
    try:
        return normal_bus_id(raw.decode("ascii") if isinstance(raw, bytes) else raw)
    except ValueError as error:
        raise Garbage(str(error)) from error


def virtualization(value: Any) -> Virtualization:
    """How a GPU is virtualized for this system, by NVML_GPU_VIRTUALIZATION_MODE_*."""
    modes = tuple(Virtualization)
    return modes[whole(len(modes) - 1)(value)]


def boolean(value: Any) -> bool:
    """False for 0, True for 1. Raises Garbage for all else."""
    return whole(1)(value) == 1


def scaled(factor: int, top: int) -> Callable[[Any], int]:
    """An integer times ``factor``: MHz to hertz, KiB to bytes."""
    within = whole(top)
    return lambda value: within(value) * factor


def divided(divisor: float, top: int) -> Callable[[Any], float]:
    """An integer divided by ``divisor``: milliwatts to watts, percent to a ratio."""
    within = whole(top)
    return lambda value: within(value) / divisor


COUNT = whole(1 << 62)
"""A counter of 64 bits; no device comes near its end."""
BYTES = whole(1 << 50)
"""A size of memory; none comes near a pebibyte."""
MEGAHERTZ = scaled(1_000_000, 20_000)
"""A clock in megahertz, as NVML counts, to hertz."""
MILLIWATTS = divided(1000, 10_000_000)
"""A power in milliwatts, as NVML counts, to watts."""
CELSIUS = whole(200)
"""A temperature."""

_NVIDIA = 0x10DE
"""PCI vendor id."""

MODEL = printable_text(pynvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE)
"""The product's name."""


def mode(value: Any) -> Mode:
    """Current and pending, of two numbers."""
    current, pending = value
    return Mode(current=boolean(current), pending=boolean(pending))


def gpu_uuid(value: Any) -> str:
    """The UUID of a whole GPU."""
    uuid = printable_text(pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE)(value)
    if not uuid.startswith("GPU-"):
        raise Garbage(f"not a GPU's UUID: {uuid:.80}")
    return uuid


def pci_id(field: str) -> Callable[[Any], int]:
    """Device or subsystem id; the vendor in the lower half of the former shows nonsense."""

    def convert(value: Any) -> int:
        if int(value.pciDeviceId) & 0xFFFF != _NVIDIA:
            raise Garbage(f"device id {value.pciDeviceId:#x} is not NVIDIA's")
        return int(getattr(value, field))

    return convert
