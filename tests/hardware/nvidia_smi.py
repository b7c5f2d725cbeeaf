# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's nvidia-smi as the judge of what gpuscape says of the same GPUs."""

from __future__ import annotations

import csv
import subprocess

NVIDIA_SMI = "nvidia-smi"


def query(*names: str) -> list[dict[str, str]]:
    """Properties of ``nvidia-smi --help-query-gpu`` of each GPU, as it prints them."""
    text = printed(f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def printed(*arguments: str) -> str:
    """Standard output of nvidia-smi. Raises CalledProcessError where it fails."""
    command = [NVIDIA_SMI, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout
