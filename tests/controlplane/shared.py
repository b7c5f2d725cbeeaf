# SPDX-License-Identifier: Apache-2.0
"""The control planes of one test run: started by the first test that needs them, used by all.

Test processes of a run share a folder. What it takes to use a plane lies there in a file;
the plane itself ends with the run, and not with the process that happened to start it.
"""

from __future__ import annotations

import fcntl
import json
import tempfile
from pathlib import Path

from tests.controlplane.families import CONTROLLER_MANAGER_MINOR
from tests.controlplane.own import OwnPlane, start_controller_manager
from tests.controlplane.plane import Plane
from tests.controlplane.programs import Programs

LIVES = 4
"""Hundreds of tests use one plane, and its API server crashes once in some dozen runs: two
threads in one map of a policy's types. Source: kubernetes/kubernetes#135757, open."""
COMEBACK_SECONDS = 180.0


def shared_plane(minor: str, run_folder: Path, run: int) -> Plane:
    """The plane of that minor, with controllers if it is the newest.

    ``run`` is the process with which it ends. Raises NotPreparedError and ProgramError.
    """
    described = run_folder / f"plane-{minor}.json"
    with described.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not described.exists():
            plane = _started(minor, run_folder, run)
            content = json.dumps({"folder": str(plane.folder), "port": plane.port})
            described.write_text(content, encoding="utf-8")
    facts = json.loads(described.read_text(encoding="utf-8"))
    return Plane(
        minor=minor,
        folder=Path(facts["folder"]),
        port=facts["port"],
        patience_seconds=COMEBACK_SECONDS,
    )


def _started(minor: str, run_folder: Path, run: int) -> Plane:
    folder = Path(tempfile.mkdtemp(prefix=f"plane-{minor}-", dir=run_folder))
    programs = Programs(folder / "logs", until=run)
    try:
        plane = OwnPlane.launch(folder, programs, minor, lives=LIVES)
        if minor == CONTROLLER_MANAGER_MINOR:
            start_controller_manager(plane, programs)
    except BaseException:
        programs.end()
        raise
    programs.leave()
    return plane
