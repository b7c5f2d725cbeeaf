# SPDX-License-Identifier: Apache-2.0
"""Keeps GPU 0 busy in one way after another, by PyTorch; no part of gpuscape is needed.

    python3 -m tests.hardware.loads SECONDS

Of each way it prints the name and the seconds since 1970 when it began and when it ended. 30 GiB of
the GPU's memory and 1 GiB of pinned memory are taken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch  # type: ignore[import-not-found]  # of the Python that runs this


def main() -> int:
    """Run all ways, each for as many seconds as the argument says."""
    seconds = float(sys.argv[1])
    gpu = {"device": "cuda"}
    half = torch.randn(8192, 8192, dtype=torch.bfloat16, **gpu)
    single = torch.randn(8192, 8192, **gpu)
    double = torch.randn(4096, 4096, dtype=torch.float64, **gpu)
    large, copy = (torch.empty(1 << 32, dtype=torch.uint8, **gpu) for _ in range(2))
    pinned = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    gibibyte = large[: 1 << 30]
    torch.backends.cuda.matmul.allow_tf32 = False

    def half_the_time() -> None:
        begin = time.time()
        repeat(150, lambda: half @ half)
        time.sleep(time.time() - begin)

    ways: dict[str, Callable[[], object]] = {
        "bf16 products": lambda: repeat(50, lambda: half @ half),
        "copies in its memory": lambda: repeat(50, lambda: copy.copy_(large)),
        "fp64 products": lambda: repeat(10, lambda: double @ double),
        "fp32 products": lambda: repeat(5, lambda: single @ single),
        "copies to it": lambda: gibibyte.copy_(pinned, non_blocking=True),
        "copies from it": lambda: pinned.copy_(gibibyte, non_blocking=True),
        "bf16, half of the time": half_the_time,
    }
    begin = time.time()
    time.sleep(seconds)
    say(f"idle: {begin} {time.time()}")
    for name, work in ways.items():
        work()
        torch.cuda.synchronize()
        begin = time.time()
        while time.time() < begin + seconds:
            work()
            torch.cuda.synchronize()
        say(f"{name}: {begin} {time.time()}")
    return 0


def repeat(times: int, work: Callable[[], object]) -> None:
    """Ask for it ``times`` times, and wait for the last."""
    for _ in range(times):
        work()
    torch.cuda.synchronize()


def say(line: str) -> None:
    """One line on standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
