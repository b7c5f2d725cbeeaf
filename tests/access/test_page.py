# SPDX-License-Identifier: Apache-2.0
"""The security page's commands show what it says they show."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.access.stage import Roles, Stage
from tests.controlplane.builds import find
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, KUBERNETES
from tests.controlplane.plane import Plane

PAGE = Path(__file__).parents[2] / "docs/security.md"


def commands() -> str:
    """The block of the page that a reader is asked to run."""
    block = re.search(
        r"<!-- run: check it yourself -->\n\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert block
    return block[1]


@pytest.mark.cluster
def test_a_reader_who_runs_the_commands_sees_what_the_page_says(
    plane: Plane, tmp_path: Path
) -> None:
    stage = Stage(plane, Roles.SHIPPED)
    kubernetes = find(KUBERNETES[CONTROLLER_MANAGER_MINOR])
    names = f"NAMESPACE={stage.namespace} NODE={stage.node} OTHER={stage.other}"
    script = re.sub("NAMESPACE=gpuscape NODE=node-a OTHER=node-b", names, commands())
    environment = {
        "PATH": f"{kubernetes}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(plane.kubeconfig()),
    }
    try:
        stage.wait_until_enforced()
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        stage.close()

    said = re.findall(r"(?<=   # ).*", script)
    for line, wanted in zip(done.stdout.splitlines(), said, strict=True):
        for part in wanted.split(": "):
            assert part in line
