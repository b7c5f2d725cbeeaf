# SPDX-License-Identifier: Apache-2.0
"""Each program of an installation compares its version with that of its chart or manifests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from base.settings.version_skew import VARIABLE

GPUSCAPE: Final = Path(sys.executable).with_name("gpuscape")
NOWHERE: Final = ("--kubeconfig", "/nowhere")
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "agent": ("agent", *NOWHERE),
    "actuator": ("actuator", "--simulate", "/nowhere"),
    "coordinator": ("coordinator", *NOWHERE),
    "extender": ("scheduler", *NOWHERE),
    "certificates": ("scheduler", "certificates", *NOWHERE),
}
"""Programs to how they are started and end soon after."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_programs_first_line_names_a_chart_of_another_minor_version(program: str) -> None:
    done = subprocess.run(
        [GPUSCAPE, *PROGRAMS[program], "--log-format", "json"],
        env={**os.environ, VARIABLE: "9.8.7"},
        capture_output=True,
        text=True,
        check=False,
    )

    first = json.loads(done.stderr.splitlines()[0])
    assert first["message"] == "image and manifests of different versions"
    assert (first["level"], first["manifests"]) == ("WARNING", "9.8.7")
    assert done.returncode == 2
