# SPDX-License-Identifier: Apache-2.0
"""The functions that the library exports: those of the table, and all others that NVML has."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pynvml

from discovery.nvml_abi.entry_point_table import TABLE
from simulator.clibrary.parameter_memory import MemoryShape, Parameter, parameters

_CALLED_BY_PYNVML = re.compile(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An exported function."""

    name: str
    parameters: tuple[Parameter, ...]
    gives_text: bool = False
    """It returns a text instead of a code."""


@cache
def exports() -> tuple[Export, ...]:
    """All exported functions, in an order that the library and its server share.

    Programs link against names that the table does not have, and end where one of them is
    missing. Those are here in the form that a test may have them answered in, a device and a
    number (``Readings.numbers``), and are FUNCTION_NOT_FOUND else. Source of the names: pynvml's
    calls, which are those of NVIDIA's nvml.h.
    """
    known = [
        Export(name=entry.name, parameters=parameters(entry), gives_text=entry.text)
        for _, entry in sorted(TABLE.items())
    ]
    source = Path(pynvml.__file__).read_text("utf-8")
    other_names = sorted(set(_CALLED_BY_PYNVML.findall(source)) - set(TABLE))
    return (*known, *(Export(name=name, parameters=_NUMBER_OF_A_GPU) for name in other_names))


_NUMBER_OF_A_GPU = (
    Parameter(ctype=pynvml.c_nvmlDevice_t),
    # what stands in the caller's second argument is not read: it may be no pointer
    Parameter(shape=MemoryShape.GIVEN, size=ctypes.sizeof(ctypes.c_uint)),
)
