# SPDX-License-Identifier: Apache-2.0
"""Recordings: what was typed, when, and what came; nothing of the machine where it was."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from tests.controlplane.plane import Plane
from tests.node.admin_shell import AdminShell


@dataclass
class Answers:
    """A control plane as far as kubectl goes."""

    answers: list[str]
    folder: Path = Path("/nowhere")
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def kubectl(self, *arguments: str) -> str:
        """The next answer."""
        self.asked.append(arguments)
        return self.answers.pop(0)


def test_commands_come_with_their_output_in_order() -> None:
    """Quoted as a shell needs it, without blanks at the ends of lines."""
    plane = Answers(["NODE    \nreal-1  \n", ""])
    shell = AdminShell(cast("Plane", plane))

    shell.says("Two nodes.")
    assert shell.run("kubectl", "get", "nodes") == "NODE    \nreal-1  \n"
    shell.run("kubectl", "annotate", "node", "real-1", 'a={"0": 1}')

    assert plane.asked == [("get", "nodes"), ("annotate", "node", "real-1", 'a={"0": 1}')]
    assert shell.page("Title", "About.") == (
        "# Title\n\nAbout.\n\nTwo nodes.\n\n"
        "```console\n[00:00] $ kubectl get nodes\nNODE\nreal-1\n```\n\n"
        "```console\n[00:00] $ kubectl annotate node real-1 'a={\"0\": 1}'\n```\n"
    )


@pytest.mark.parametrize("private", [socket.gethostname(), str(Path.home()), "/nowhere"])
def test_a_page_that_shows_something_of_the_machine_is_not_written(private: str) -> None:
    shell = AdminShell(cast("Plane", Answers([f"at {private}/x\n"])))
    shell.run("kubectl", "get", "nodes")

    with pytest.raises(ValueError, match="the recording has"):
        shell.page("Title", "About.")
