# SPDX-License-Identifier: Apache-2.0
"""Makes NVML calls one at a time: each gives its value, or a gap that says why there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import pynvml

from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, GpuLost
from discovery.model import Gap, Reason
from discovery.nvml.conversions import Garbage, Unusable

Handle = Any
"""A device handle of pynvml: a ctypes pointer."""

Value = TypeVar("Value")

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED: Reason.UNSUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Reason.FORBIDDEN,
    pynvml.NVML_ERROR_NOT_FOUND: Reason.ABSENT,
    pynvml.NVML_SUCCESS: Reason.ABSENT,  # which pynvml raises for some lists that are empty
}
"""NVML return code to the reason of a gap; every other code is FAILED. Those of a lost GPU make no
gap: they end its reading. Source: nvml.h."""

_PART_REASONS = _REASONS | {pynvml.NVML_ERROR_INVALID_ARGUMENT: Reason.UNSUPPORTED}
"""For one of many: older drivers refuse a field or metric they do not know as invalid."""

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}

_SESSION_GONE: dict[int, type[Transient]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: DriverAbsent,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverAbsent,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: DriverAbsent,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DriverMismatch,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[Value]):
    """A field that nvmlDeviceGetFieldValues reads."""

    number: int
    """NVML_FI_DEV_* of nvml.h."""
    convert: Callable[[Any], Value]
    """From the field's number to the reading; raises Garbage for the impossible."""
    scope: int = 0
    mistyped: str | None = None
    """Union member to read where the value's type cannot be right, as some drivers have it."""
    wide: bool = False
    """A counter that means something in 64 bits alone: one of 32 starts again too often."""


def has_entry_point(name: str) -> bool:
    """Whether the library of this session has a function of this C name; it is not called."""
    try:
        pynvml._nvmlGetFunctionPointer(name)
    except pynvml.NVMLError:
        return False
    return True


class Calls:
    """Makes NVML calls for one value and keeps a gap for each that gives nothing."""

    def __init__(self, *, invalid_argument: Reason = Reason.FAILED) -> None:
        """``invalid_argument``: what that code means here; for numbered things, "no such one"."""
        self.gaps: list[Gap] = []
        self._reasons = _REASONS | {pynvml.NVML_ERROR_INVALID_ARGUMENT: invalid_argument}

    @overload
    def ask(self, reading: str, call: str, *args: object) -> Any: ...

    @overload
    def ask(
        self, reading: str, call: str, *args: object, convert: Callable[[Any], Value]
    ) -> Value | None: ...

    def ask(
        self,
        reading: str,
        call: str,
        *args: object,
        convert: Callable[[Any], Any] = lambda raw: raw,
    ) -> Any:
        """The answer of ``pynvml.<call>(*args)``, converted; None with a new gap named ``reading``.

        Raises GpuLost when the GPU is gone, DriverAbsent or DriverMismatch when
        the whole session is gone: both make further calls pointless.
        """
        return self._tried(
            reading, call, self._reasons, lambda: convert(getattr(pynvml, call)(*args))
        )

    def fields(
        self, named_fields: Sequence[tuple[str, Field[Value]]], handle: Handle
    ) -> list[Value | None]:
        """The readings of all fields, in their order, from one call.

        ``named_fields``: names of the gaps, and fields. Raises as :meth:`ask` does.
        """
        call = "nvmlDeviceGetFieldValues"
        tried = Calls()
        numbers = [(field.number, field.scope) for _, field in named_fields]
        answer = tried.ask("fields", call, handle, numbers)
        if answer is None:
            self._miss_all([reading for reading, _ in named_fields], tried.gaps[0])
            return [None] * len(named_fields)
        return [
            self.part(reading, f"{call}({field.number})", _converted, field, value)
            for (reading, field), value in zip(named_fields, answer, strict=True)
        ]

    def parts(
        self, converts: Mapping[str, Callable[[Any], Any]], call: str, *args: object
    ) -> dict[str, Any]:
        """The readings that one call answers together, by name; each is converted by itself.

        Raises as :meth:`ask` does.
        """
        tried = Calls()
        answer = tried.ask("all", call, *args)
        if answer is None:
            self._miss_all(converts, tried.gaps[0])
            return {}
        return {name: self.part(name, call, convert, answer) for name, convert in converts.items()}

    def part(
        self, reading: str, source: str, read: Callable[..., Value], *args: Any
    ) -> Value | None:
        """The result of ``read(*args)``, which converts one part of an answer; None with a gap.

        Raises as :meth:`ask` does.
        """
        return self._tried(reading, source, _PART_REASONS, lambda: read(*args))

    def _tried(
        self, reading: str, source: str, reasons: Mapping[int, Reason], read: Callable[[], Value]
    ) -> Value | None:
        try:
            return read()
        except pynvml.NVMLError as error:
            raise_if_gone(error, source)
            self.miss(reading, reasons.get(error.value, Reason.FAILED), source, str(error))
        except Unusable as error:
            self.miss(reading, Reason.UNSUPPORTED, source, str(error))
        except UnicodeDecodeError:
            self.miss(reading, Reason.GARBAGE, source, "text that is not UTF-8")
        except ValueError as error:  # Garbage, and what ctypes or int() make of nonsense
            self.miss(reading, Reason.GARBAGE, source, str(error))
        except (AttributeError, TypeError) as error:  # another version of pynvml: lose this alone
            self.miss(reading, Reason.FAILED, source, f"{type(error).__name__}: {error}")
        return None

    def _miss_all(self, readings: Iterable[str], whole: Gap) -> None:
        for reading in readings:
            self.miss(reading, whole.reason, whole.source, whole.detail)

    def miss(self, reading: str, reason: Reason, source: str, detail: str) -> None:
        """Keep a gap."""
        self.gaps.append(Gap(what=reading, reason=reason, source=source, detail=detail))


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

_NARROW = (
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT,
    pynvml.NVML_VALUE_TYPE_SIGNED_INT,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT,
)


def _converted(field: Field[Value], value: Any) -> Value:
    number = field_value(value, field.mistyped)
    if field.wide and value.valueType in _NARROW:
        raise Unusable("a counter of 32 bits or less, which starts again too often")
    return field.convert(number)


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
