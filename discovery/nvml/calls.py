"""One NVML call at a time: its value, or a gap that says why there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.model import Gap, Reason, normal_bus_id

Handle = Any
"""A device handle as pynvml gives it: a ctypes pointer."""

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Reason.FORBIDDEN,
    pynvml.NVML_ERROR_NOT_FOUND: Reason.ABSENT,
    pynvml.NVML_SUCCESS: Reason.ABSENT,  # which pynvml raises for some lists that are empty
    pynvml.NVML_ERROR_GPU_IS_LOST: Reason.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Reason.LOST,
}
"""NVML return code to the reason of a gap; every other code is FAILED. Source: nvml.h."""

_PART_REASONS = _REASONS | {pynvml.NVML_ERROR_INVALID_ARGUMENT: Reason.UNSUPPORTED}
"""For one of many: older drivers refuse a field or metric they do not know as invalid."""

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}

_SESSION_GONE: dict[int, type[Transient]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: DriverAbsent,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverAbsent,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: DriverAbsent,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DriverMismatch,
}


class Garbage(ValueError):
    """An answer outside what is possible; its text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReading:
    """One field that one NVML call gives."""

    what: str
    """Field of the value that is being read."""
    call: str
    """pynvml's function, called with the handle and ``args``."""
    convert: Callable[[Any], Any]
    """Answer to field value; raises Garbage for the impossible."""
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One reading that nvmlDeviceGetFieldValues gives."""

    what: str
    field: int
    convert: Callable[[Any], Any]
    scope: int = 0
    mistyped: str | None = None
    """Union member to read where the value's type cannot be right, as some drivers have it."""


class Calls:
    """Makes NVML calls for one value and keeps a gap for each that gives nothing."""

    def __init__(self, *, invalid_argument: Reason = Reason.FAILED) -> None:
        """``invalid_argument``: what that code means here; for numbered things, "no such one"."""
        self.gaps: list[Gap] = []
        self._reasons = _REASONS | {pynvml.NVML_ERROR_INVALID_ARGUMENT: invalid_argument}

    def ask(
        self, what: str, call: str, *args: object, convert: Callable[[Any], Any] = lambda it: it
    ) -> Any:
        """What ``pynvml.<call>(*args)`` gives, converted; None beside a new gap.

        Raises GpuLost when the GPU is gone, DriverAbsent or DriverMismatch when
        the whole session is: both make further calls pointless.
        """
        try:
            return convert(getattr(pynvml, call)(*args))
        except pynvml.NVMLError as error:
            raise_if_gone(error, call)
            self.miss(what, self._reasons.get(error.value, Reason.FAILED), call, str(error))
        except UnicodeDecodeError:
            self.miss(what, Reason.GARBAGE, call, "text that is not UTF-8")
        except ValueError as error:  # Garbage, and what ctypes or int() make of nonsense
            self.miss(what, Reason.GARBAGE, call, str(error))
        except (AttributeError, TypeError) as error:  # another version of pynvml: lose this alone
            self.miss(what, Reason.FAILED, call, f"{type(error).__name__}: {error}")
        return None

    def read(self, readings: Sequence[CallReading], handle: Handle) -> dict[str, Any]:
        """All readings of a table that give something, by field."""
        asked = {
            r.what: self.ask(r.what, r.call, handle, *r.args, convert=r.convert) for r in readings
        }
        return {what: value for what, value in asked.items() if value is not None}

    def fields(self, fields: Sequence[Field], handle: Handle) -> dict[str, Any]:
        """All field values that give something, asked in one call, by field."""
        call = "nvmlDeviceGetFieldValues"
        asked = self.ask("fields", call, handle, [(f.field, f.scope) for f in fields])
        if asked is None:
            whole = self.gaps.pop()
            for field in fields:
                self.miss(field.what, whole.reason, call, whole.detail)
            return {}
        found = {}
        for field, value in zip(fields, asked, strict=True):
            number = self.part(field.what, f"{call}({field.field})", _converted, field, value)
            if number is not None:
                found[field.what] = number
        return found

    def parts(self, parts: Mapping[str, Callable[[Any], Any]], call: str, *args: object) -> Any:
        """What one call tells of several fields, by field: each is converted by itself."""
        tried = Calls()
        answer = tried.ask("all", call, *args)
        if answer is None:
            for what in parts:
                self.miss(what, tried.gaps[0].reason, call, tried.gaps[0].detail)
            return {}
        asked = {what: self.part(what, call, convert, answer) for what, convert in parts.items()}
        return {what: value for what, value in asked.items() if value is not None}

    def part(self, what: str, source: str, read: Callable[..., Any], *args: object) -> Any:
        """What ``read(*args)`` gives, which looks at one part of an answer; None beside a gap.

        Raises as :meth:`ask` does.
        """
        try:
            return read(*args)
        except pynvml.NVMLError as error:
            raise_if_gone(error, source)
            self.miss(what, _PART_REASONS.get(error.value, Reason.FAILED), source, str(error))
        except ValueError as error:
            self.miss(what, Reason.GARBAGE, source, str(error))
        return None

    def miss(self, what: str, reason: Reason, source: str, detail: str) -> None:
        """Keep a gap."""
        self.gaps.append(Gap(what=what, reason=reason, source=source, detail=detail))


def raise_if_gone(error: pynvml.NVMLError, call: str) -> None:
    """Raise GpuLost, DriverAbsent or DriverMismatch when ``error`` means just that.

    One call may claim that the session is gone while all others work, so the
    claim counts only if the driver's version cannot be had either.
    """
    if error.value in _LOST:
        raise GpuLost(f"{call}: {error}") from error
    if error.value in _SESSION_GONE:
        try:
            pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError as confirmed:
            kind = _SESSION_GONE.get(confirmed.value)
            if kind is not None:
                raise kind(f"{call}: {confirmed}") from confirmed


_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of nvmlValue_t by nvmlValueType_t. Source: nvml.h."""


def _converted(field: Field, value: Any) -> Any:
    return field.convert(field_value(value, field.mistyped))


def field_value(value: Any, mistyped: str | None = None) -> float | int:
    """The number in an nvmlFieldValue_t, by its type.

    ``mistyped`` is the union member to read instead where the type is none that NVML
    defines, or is a double that no reading has: a whole number of 32 bits, taken for
    a double, is smaller than any normal one. Raises the NVMLError of this one field,
    and Garbage where there is no member to read.
    """
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    known = 0 <= value.valueType < len(_UNION)
    number: float | int = getattr(value.value, _UNION[value.valueType]) if known else 0
    if mistyped is not None and (not known or 0 < abs(number) < sys.float_info.min):
        number = getattr(value.value, mistyped)
    elif not known:
        raise Garbage(f"value type {value.valueType}")
    return number


# conversions: each checks the range that is possible at all

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


def between(least: float, most: float) -> Callable[[Any], float]:
    """A number within these bounds; NaN is in none."""

    def convert(value: Any) -> float:
        if not least <= value <= most:
            raise Garbage(f"{value} is not in {least:g}..{most:g}")
        number: float = value
        return number

    return convert


def text(room: int) -> Callable[[Any], str]:
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


def flag(value: Any) -> bool:
    """0 or 1."""
    return whole(1)(value) == 1


def scaled(factor: int, top: int) -> Callable[[Any], int]:
    """An integer times ``factor``: MHz to hertz, KiB to bytes."""
    within = whole(top)
    return lambda value: within(value) * factor


def divided(divisor: float, top: int) -> Callable[[Any], float]:
    """An integer divided by ``divisor``: milliwatts to watts, percent to a ratio."""
    within = whole(top)
    return lambda value: within(value) / divisor
