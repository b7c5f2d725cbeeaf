# SPDX-License-Identifier: Apache-2.0
"""One heap for all threads, and large blocks outside of it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from base.heap import keep_small

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
    for size in (1000, 100_000):
        libc.malloc(size)
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
    assert maps(small) >= maps(usual) + 4  # one for each thread's large block


def test_another_c_library_is_left_alone() -> None:
    assert not keep_small(SimpleNamespace())  # type: ignore[arg-type]  # as musl: no such function
