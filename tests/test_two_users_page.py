# SPDX-License-Identifier: Apache-2.0
"""The page of the two users is a recording of the story as it is now; its files and options exist.

What the commands print is made, and checked, by ``tests/node/test_two_users.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

import click
import pytest

from cli.main import main
from tests import examples
from tests.controlplane.plane import ADMIN
from tests.node.admin_shell import paragraph
from tests.node.example_images import image_names
from tests.node.user_story import ABOUT, BED, PAGE, SCENES, TITLE

TEXT: Final = PAGE.read_text("utf-8")
TYPED: Final = [each for scene in SCENES.values() for each in scene.typed]
_PRINTED: Final = re.compile(r"^(```console\n[^\n]+\n).+?^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"(?<=-f )examples/(\S+)")


def without_output(text: str) -> str:
    """Of each block only the command; a block without output stays as it is, and is noticed."""
    return _PRINTED.sub(r"\1```", text)


def expected() -> Iterator[str]:
    """The page's parts, by the story."""
    yield from (f"# {TITLE}", paragraph(ABOUT), paragraph(BED))
    for scene in SCENES.values():
        yield paragraph(scene.says)
        for who, command in scene.typed:
            yield f"```console\n{who}$ {command}\n```"


def test_the_page_has_the_sentences_and_commands_of_the_story_in_order() -> None:
    """Else play it again with ``--write-pages``."""
    assert without_output(TEXT) == "\n\n".join(expected()) + "\n"
    assert len(_PRINTED.findall(TEXT)) == len(TYPED)


def test_every_file_that_is_applied_is_one_of_the_examples() -> None:
    named = [file for _, command in TYPED for file in _FILE.findall(command)]
    assert set(named) <= {*examples.ADMINS, *examples.USERS}
    assert {"training.yaml", "inference.yaml", "inference-mig.yaml", "experiment.yaml"} <= {*named}


def test_people_work_in_their_own_namespace_and_only_the_admin_outside() -> None:
    teams = {person: team for team, person in examples.PEOPLE.items()}
    for who, command in TYPED:
        if who != ADMIN:
            assert command.startswith(f"kubectl -n {teams[who]} ")
    assert {who for who, _ in TYPED} == {ADMIN, *teams}


@pytest.mark.parametrize("command", [it for _, it in TYPED if it.startswith("gpuscape ")])
def test_a_command_of_ours_is_there_with_its_options(command: str) -> None:
    found: click.Command = main
    _, *words = shlex.split(command)
    while isinstance(found, click.Group):
        name, *words = words
        found = found.get_command(click.Context(found), name) or pytest.fail(command)
    found.make_context(command, words)


def test_every_image_of_the_examples_is_replaced() -> None:
    assert len(image_names()) == 4
    assert all(name.startswith("registry.example/") for name in image_names())
