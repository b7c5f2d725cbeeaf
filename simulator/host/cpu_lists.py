# SPDX-License-Identifier: Apache-2.0
"""CPU lists as the kernel writes them: ``0-15,128-143`` and hexadecimal masks."""

from __future__ import annotations

from collections.abc import Iterable

_WORD_BITS = 32


def cpu_numbers(text: str) -> tuple[int, ...]:
    """The CPUs of a kernel list, in its order; empty text is no CPU.

    Raises ValueError on anything that is not numbers and rising ranges.
    """
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"not a CPU list: {text!r}")
        span = range(int(first), int(last or first) + 1)
        if not span:
            raise ValueError(f"a range in the CPU list {text!r} falls")
        numbers += span
    return tuple(numbers)


def cpu_list_text(numbers: Iterable[int]) -> str:
    """A kernel list of these CPUs: sorted, neighbours joined to ranges."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def cpu_mask(numbers: Iterable[int], *, possible: int) -> str:
    """A mask as in ``local_cpus``: 32-bit words, most significant first, for ``possible`` CPUs."""
    bits = sum(1 << number for number in set(numbers))
    words = -(-possible // _WORD_BITS)
    return ",".join(
        f"{bits >> (_WORD_BITS * index) & 0xFFFFFFFF:08x}" for index in reversed(range(words))
    )
