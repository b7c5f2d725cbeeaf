# SPDX-License-Identifier: Apache-2.0
"""The lines of docs/mig-manager.md, typed as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Final

from tests import pages
from tests.agent.agent_process import GPUSCAPE, until
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES
from tests.controlplane.plane import Plane

PACED: Final = 420.0
"""Seconds: an agent writes its Node once a minute, and a change has borrowed three of them."""
_PAGE: Final = pages.page("docs/mig-manager.md")


def play(plane: Plane, name: str) -> None:
    """Run the lines of a block of the page in a shell; one that says so, until it ends with 0."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig()),
        "PATH": os.pathsep.join(
            [str(GPUSCAPE.parent), str(binaries(KUBERNETES["1.37"])), os.environ["PATH"]]
        ),
    }
    lines = [it for it in re.split(r"^\$ ", pages.marked(_PAGE, name), flags=re.MULTILINE) if it]

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], env=environment, capture_output=True, text=True, check=False
        )

    for line in lines:
        if "--exit-code" in line:
            until(lambda line=line: run(line).returncode == 0, PACED)  # type: ignore[misc]
            continue
        done = run(line)
        assert done.returncode == 0, (line, done.stderr)
