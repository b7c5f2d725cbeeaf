# SPDX-License-Identifier: Apache-2.0
"""The library that ``pynvml.CDLL`` loads instead of libnvidia-ml.so.1, and its installation."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable

import pynvml

from discovery.nvml_abi.argument_kinds import SUCCESS, Nvml
from discovery.nvml_abi.entry_point import EntryPoint
from discovery.nvml_abi.entry_point_table import TABLE, number_of_a_gpu
from simulator.driver.simulated_driver import SimulatedDriver

Load = Callable[[str], object]
"""From the library's file name to the loaded library; raises OSError where there is none."""

_log = logging.getLogger(__name__)


class Function:
    """An entry point, called as ctypes calls C; return and argument types can be set on it."""

    def __init__(self, entry: EntryPoint, driver: SimulatedDriver) -> None:
        self._entry = entry
        self._driver = driver
        self.restype: object = ctypes.c_int
        self.argtypes: object = None

    def __call__(self, *args: object) -> int | bytes | None:
        """The return code, or the text of an entry point that returns one.

        Raises ctypes.ArgumentError as ctypes does; any other exception inside is
        NVML_ERROR_UNKNOWN, with its traceback in the log.
        """
        try:
            return self._call(args)
        except ctypes.ArgumentError:
            raise
        except Nvml as refused:
            return None if self._entry.text else refused.code
        except Exception:
            _log.exception("simulated NVML call failed", extra={"call": self._entry.name})
            return None if self._entry.text else int(pynvml.NVML_ERROR_UNKNOWN)

    def _call(self, args: tuple[object, ...]) -> int | bytes:
        book = self._driver.book
        inputs = self._entry.decode(args, book)
        outcome = self._driver.call(self._entry, inputs)
        if self._entry.text:
            return str(outcome.values[0]).encode()
        code = self._entry.write(args, outcome.values, book)
        if outcome.garbage is not None and code == SUCCESS:
            self._entry.restore(args, inputs)
            self._entry.spoil(args, outcome.garbage)
        return code


class Library:
    """Stands for the loaded library; an unknown name is an AttributeError, as with a CDLL."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Function:
        entry = TABLE.get(name)
        if entry is None and self._driver.is_made_to_answer(name):
            entry = number_of_a_gpu(name)
        if entry is None or not self._driver.has(entry):
            raise AttributeError(f"undefined symbol: {name}")
        function = Function(entry, self._driver)
        setattr(self, name, function)
        return function


def put_under_pynvml(load: Load) -> Callable[[], None]:
    """Have pynvml load its library by ``load`` from its next init on; calling the result undoes it.

    pynvml keeps the library and a count of sessions for the whole process; they are
    put aside and come back with the undoing.
    """
    before = (pynvml.CDLL, pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    _put(load, None, 0)
    return lambda: _put(*before)


def loading() -> Load:
    """How pynvml loads its library by now."""
    load: Load = pynvml.CDLL
    return load


def _put(load: Load, library: object, sessions: int) -> None:
    pynvml.CDLL = load
    pynvml.nvmlLib = library
    pynvml._nvmlLib_refcount = sessions
    pynvml._nvmlGetFunctionPointer_cache.clear()  # it holds functions of the other library
