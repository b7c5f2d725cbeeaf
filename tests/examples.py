# SPDX-License-Identifier: Apache-2.0
"""The files of ``examples/``: which are applied as they are, and what is in them."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.pages import ROOT

FOLDER: Final = ROOT / "examples"
ADMINS: Final = ("priorities.yaml", "teams/speech.yaml", "teams/vision.yaml", "time-slicing.yaml")
"""In the order of applying."""
OF_PROGRAMS: Final = ("labels/", "node-pools/", "queue/")
"""Folders whose files other programs read: they have tests of their own."""
USERS: Final = {
    "training.yaml": "vision",
    "inference.yaml": "vision",
    "experiment.yaml": "speech",
    "inference-mig.yaml": "speech",
    "development.yaml": "speech",
}
"""To the team that applies it."""
QUEUED: Final = ("queue/job.yaml", "queue/jobset.yaml")
"""What waits in the queue of ``queue/queue.yaml``."""
PEOPLE: Final = {"vision": "ana", "speech": "ben"}
"""Somebody of each team."""


def objects(name: str) -> list[dict[str, Any]]:
    """Of a file, in its order."""
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def only(name: str) -> dict[str, Any]:
    """The one object of a file."""
    (found,) = objects(name)
    return found


def member(team: str) -> tuple[str, ...]:
    """Options of kubectl for somebody of this team, with the rights of that person alone."""
    return (f"--as={PEOPLE[team]}", f"--as-group={team}", "-n", team)
