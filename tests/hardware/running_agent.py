# SPDX-License-Identifier: Apache-2.0
"""An agent without a cluster on this machine's GPUs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

GPUSCAPE: Final = str(Path(sys.executable).with_name("gpuscape"))
ADDRESS: Final = "127.0.0.1:19400"
START_SECONDS: Final = 6.0
"""In which it reads the GPUs for the first time, and then twice more for what needs two samples."""


@contextlib.contextmanager
def agent(*options: str) -> Iterator[psutil.Process]:
    """It serves our families and samples each second, for as long as the context lasts."""
    command = [
        *(GPUSCAPE, "agent", "--standalone", "--own-families", "all", "--sample-interval", "1s"),
        *("--listen", ADDRESS, "--probe-listen", "127.0.0.1:0", *options),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        try:
            time.sleep(START_SECONDS)
            yield psutil.Process(running.pid)
        finally:
            running.terminate()


def scrape() -> str:
    """What it serves now."""
    with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
