# SPDX-License-Identifier: Apache-2.0
"""The argument of nvmlGpmMetricsGet: two samples, and metrics to compute from them."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import ClassVar

import pynvml

from discovery.nvml_abi.argument_kinds import (
    SUCCESS,
    ArgumentKind,
    Arguments,
    Nvml,
    address_of,
)
from discovery.nvml_abi.c_values import (
    CType,
    Garbage,
    HandleBook,
    Value,
    load_value,
    spoil_value,
)

_QUESTION: CType = pynvml.c_nvmlGpmMetricsGet_t
_METRIC: CType = pynvml.c_nvmlGpmMetric_t
_MOST = pynvml.NVML_GPM_METRIC_MAX


@dataclass(frozen=True, slots=True)
class GpmQuestion(ArgumentKind):
    """The question, by reference. It has room for as many metrics as the caller's nvml.h knows.

    So what is behind the number of requested metrics is never touched; nor are the
    pointers to their names, which stay as the caller left them.
    """

    takes: ClassVar[bool] = True
    gives: ClassVar[bool] = True

    def decode(self, args: Arguments, book: HandleBook) -> Value:
        """Version, both samples, and the metrics' ids.

        Raises Nvml: ARGUMENT_VERSION_MISMATCH for a version there is not, INVALID_ARGUMENT
        for more metrics than there are and for samples that are none.
        """
        question = address_of(args[0])
        version, count = (_number(question, name) for name in ("version", "numMetrics"))
        if version != pynvml.NVML_GPM_METRICS_GET_VERSION:
            raise Nvml(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        if count > _MOST:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        try:
            samples = {name: _sample(question, name, book) for name in ("sample1", "sample2")}
        except LookupError as error:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT) from error
        ids = [_part(metric, "metricId", ctypes.c_uint).value for metric in _metrics(question)]
        return {"version": version, **samples, "metrics": ids}

    def write(self, args: Arguments, value: Value, book: HandleBook) -> int:
        """Store return code and value of each metric; None, as JSON has it, is no number."""
        del book
        for metric, answer in zip(_metrics(address_of(args[0])), value, strict=True):
            number = answer["value"]
            _part(metric, "nvmlReturn", ctypes.c_uint).value = answer["nvmlReturn"]
            _part(metric, "value", ctypes.c_double).value = math.nan if number is None else number
        return SUCCESS

    def read(self, args: Arguments, book: HandleBook) -> Value:
        """Id, return code and value of each metric."""
        parts = (
            ("metricId", ctypes.c_uint),
            ("nvmlReturn", ctypes.c_uint),
            ("value", ctypes.c_double),
        )
        return [
            {name: load_value(kind, metric + _offset(_METRIC, name), book) for name, kind in parts}
            for metric in _metrics(address_of(args[0]))
        ]

    def spoil(self, args: Arguments, garbage: Garbage) -> None:
        """Spoil the values of the metrics."""
        for metric in _metrics(address_of(args[0])):
            spoil_value(ctypes.c_double, metric + _offset(_METRIC, "value"), garbage)


def _metrics(question: int) -> list[int]:
    """Address of each requested metric."""
    first = question + _offset(_QUESTION, "metrics")
    size = ctypes.sizeof(_METRIC)
    return [first + size * place for place in range(_number(question, "numMetrics"))]


def _sample(question: int, name: str, book: HandleBook) -> Value:
    return load_value(pynvml.c_nvmlGpmSample_t, question + _offset(_QUESTION, name), book)


def _number(question: int, name: str) -> int:
    number: int = ctypes.c_uint.from_address(question + _offset(_QUESTION, name)).value
    return number


def _part(metric: int, name: str, kind: CType) -> CType:
    return kind.from_address(metric + _offset(_METRIC, name))


def _offset(struct: CType, name: str) -> int:
    offset: int = getattr(struct, name).offset
    return offset
