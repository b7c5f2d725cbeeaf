# SPDX-License-Identifier: Apache-2.0
"""One heap for all threads, and large blocks outside of it."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest

from base.heap import collect, keep_small

THREADS_THAT_ALLOCATE = """
import ctypes, sys, threading
from base.heap import keep_small
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if sys.argv[1] == "small":
    assert keep_small()
together = threading.Barrier(4)
def allocate():
    together.wait()
    libc.malloc(1000)
    for _ in range(50):  # more than the free space in the heap
        libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.stdout.flush()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def told(how: str) -> str:
    """What glibc says of the heaps of a process, as XML."""
    command = [sys.executable, "-c", THREADS_THAT_ALLOCATE, how]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def maps(info: str) -> int:
    """Blocks that are maps of their own."""
    (found,) = re.findall(r'<total type="mmap" count="(\d+)"', info)
    return int(found)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_all_threads_share_one_heap_and_large_blocks_are_maps() -> None:
    usual, small = told("usual"), told("small")

    assert usual.count("<heap nr=") > 1
    assert small.count("<heap nr=") == 1
    assert maps(small) >= maps(usual) + 100  # half of all threads' large blocks


def test_another_c_library_is_left_alone() -> None:
    assert not keep_small(SimpleNamespace())  # type: ignore[arg-type]  # as musl: no such function


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Source: malloc.h of glibc."""


@pytest.mark.parametrize("refused", [None, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX])
def test_all_options_are_set_and_one_that_is_refused_shows(refused: int | None) -> None:
    taken: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        taken[option] = value
        return int(option != refused)

    library = SimpleNamespace(mallopt=mallopt)
    assert keep_small(library) is (refused is None)  # type: ignore[arg-type]  # only what it uses
    assert taken == {M_ARENA_MAX: 1, M_MMAP_THRESHOLD: 65536, M_TRIM_THRESHOLD: 65536}


class Part:
    """Refers to itself, as parts of a program do by way of each other."""

    def __init__(self) -> None:
        self.other = self


def test_what_refers_to_itself_is_freed_at_once() -> None:
    gc.disable()
    try:
        part = weakref.ref(Part())
        assert part() is not None
        collect()
        assert part() is None
    finally:
        gc.enable()
