# SPDX-License-Identifier: Apache-2.0
"""Have the C library give memory back that the agent no longer uses.

glibc keeps an arena for each of up to eight threads a core, and learns to keep large blocks once
one was freed. An exposition of some hundred kilobytes is made every few seconds in one thread
and sent by another, so that memory swings by 10 MiB for hours; with one arena, and large blocks
mapped by themselves, it stays where it is. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
import gc

_OPTIONS = {
    -8: 1,  # M_ARENA_MAX; our threads seldom allocate at the same time
    -3: 64 << 10,  # M_MMAP_THRESHOLD: blocks from here on are maps of their own; no more learning
    -1: 64 << 10,  # M_TRIM_THRESHOLD: more than this at the heap's end goes back
}


def keep_small(library: ctypes.CDLL | None = None) -> bool:
    """Set this process up, before its threads start; False where the C library is not glibc."""
    try:
        mallopt = (library or ctypes.CDLL(None)).mallopt
    except AttributeError:
        return False
    taken = [mallopt(option, value) for option, value in _OPTIONS.items()]
    return all(taken)


def collect() -> None:
    """Free what parts that were replaced leave behind: they refer to each other, and the garbage
    collector's own turn may be hours away. Takes some tens of milliseconds.
    """
    gc.collect()
