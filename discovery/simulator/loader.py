"""Put another library under pynvml, and take it away again."""

from __future__ import annotations

from collections.abc import Callable

import pynvml

Load = Callable[[str], object]
"""From the library's file name to the loaded library; raises OSError where there is none."""


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
