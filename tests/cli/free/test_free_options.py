# SPDX-License-Identifier: Apache-2.0
"""The options of ``gpuscape free``, and its view that refreshes in place."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from cli import terminal
from cli.free import free_command
from cli.live_screen import ScreenEvent
from kube.api_errors import Forbidden, Unreachable
from tests.cli.conftest import Run
from tests.cli.free.free_cluster import Api, refused, said
from tests.fakes.api import Call


class PlayedScreen:
    """A terminal of 90 columns, in which so many times go by before a person quits."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.waits: list[float] = []
        self.frames: list[list[str]] = []
        self.between: Any = lambda _: None
        """What happens before the next time."""

    @property
    def size(self) -> os.terminal_size:
        return os.terminal_size((90, 24))

    def draw(self, lines: Sequence[str]) -> None:
        self.frames.append(list(lines))

    def wait(self, seconds: float) -> ScreenEvent:
        self.waits.append(seconds)
        self.between(len(self.waits))
        return ScreenEvent.QUIT if len(self.waits) == self.times else ScreenEvent.TIME


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> PlayedScreen:
    """In place of the terminal."""
    played = PlayedScreen(3)

    @contextlib.contextmanager
    def live() -> Iterator[PlayedScreen]:
        yield played

    monkeypatch.setattr(free_command, "live_screen", live)
    monkeypatch.setattr(free_command, "is_live_terminal", lambda: True)
    return played


def test_the_view_reads_anew_each_time_and_ends_with_q(
    run: Run, api: Api, screen: PlayedScreen
) -> None:
    api.with_node("a")
    screen.between = lambda times: api.with_node(f"later-{times}")
    assert said(run, "--watch") == ""
    assert screen.waits == [5.0] * 3
    rows = [
        [line.split()[0] for line in frame[3 : 4 + at]] for at, frame in enumerate(screen.frames)
    ]
    assert rows == [["a"], ["a", "later-1"], ["a", "later-1", "later-2"]]
    for frame in screen.frames:
        assert frame[0].endswith("  q quits")
        assert frame[1] == ""
        assert frame[2].startswith("NODE")
        assert max(map(len, frame)) <= 90


def test_the_view_keeps_what_it_read_last_while_the_cluster_does_not_answer(
    run: Run, api: Api, screen: PlayedScreen
) -> None:
    api.with_node("a")
    broken: list[int] = []

    def fail(_: Call) -> None:
        if broken:
            raise Unreachable("the API server is busy")

    api.before("watch", fail)
    screen.between = lambda times: broken.append(1) if times == 1 else broken.clear()
    said(run, "-w", "--interval", "2s")
    assert screen.waits == [2.0] * 3
    first, second, third = screen.frames
    assert second[0].startswith("not read now: ")
    assert "the API server is busy" in second[0]
    assert first[1:] == second[1:] == third[1:]
    assert third[0].endswith("q quits")


def test_a_cluster_that_does_not_answer_at_first_ends_the_view(
    run: Run, api: Api, screen: PlayedScreen
) -> None:
    def fail(_: Call) -> None:
        raise Unreachable("the API server is busy")

    api.before("watch", fail)
    assert run("free", "--watch").exit_code == 4
    assert screen.frames == []


def test_a_right_that_is_missing_ends_the_view_with_what_is_needed(
    run: Run, api: Api, screen: PlayedScreen
) -> None:
    def forbid(_: Call) -> None:
        raise Forbidden("nodes is forbidden")

    api.before("watch", forbid)
    code, line = refused(run, "--watch")
    assert code == 4
    needs = "gpuscape free needs get, list and watch of nodes"
    assert line.startswith(f"Error: nodes is forbidden: {needs}")
    assert "--pods also of pods" in line
    assert screen.frames == []


def test_the_view_has_places_for_a_pod_too(run: Run, api: Api, screen: PlayedScreen) -> None:
    api.with_node("a")
    said(run, "2", "--watch", "-o", "wide")
    assert screen.frames[0][2].split()[0] == "NODE"
    assert screen.frames[0][3].split()[:2] == ["a", "10"]
    assert "GPU numbers are places" in screen.frames[0][5]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_is_not_watched(run: Run, api: Api, screen: PlayedScreen, output: str) -> None:
    api.with_node("a")
    assert refused(run, "--watch", "-o", output)[0] == 2
    assert screen.frames == []


def test_the_context_is_that_of_the_command_line_and_the_connection_is_closed(
    run: Run, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.with_node("a")
    opened: list[Any] = []
    closed: list[bool] = []
    monkeypatch.setattr(api, "close", lambda: closed.append(True))

    def client(*arguments: Any) -> Api:
        opened.append(arguments)
        return api

    monkeypatch.setattr(free_command, "kubeconfig_client", client)
    said(run)
    said(run, "--context", "prod")
    assert [(name, context) for name, _, context in opened] == [
        ("gpuscape-free", None),
        ("gpuscape-free", "prod"),
    ]
    assert closed == [True, True]


@pytest.mark.parametrize("arguments", [(), ("2",)])
def test_yaml_is_the_same_document_as_json(run: Run, api: Api, arguments: tuple[str, ...]) -> None:
    api.with_node("a", {"p": 0b11}, mig=3)
    api.with_node("bare", agent=False)
    document = json.loads(said(run, *arguments, "-o", "json"))
    assert yaml.safe_load(said(run, *arguments, "-o", "yaml")) == document
    assert ("totals" in document) is not bool(arguments)


def test_the_number_may_be_given_twice_where_it_is_the_same(run: Run, api: Api) -> None:
    api.with_node("a")
    assert said(run, "2", "--gpus", "2") == said(run, "2")
    code, line = refused(run, "2", "--gpus", "3")
    assert (code, line) == (2, "Error: 2 and --gpus 3: give the number of GPUs once\n")


def test_options_of_a_pod_need_its_number_of_gpus_unless_they_are_the_default(
    run: Run, api: Api
) -> None:
    api.with_node("a")
    assert said(run, "--link", "any") == said(run)
    for option in (("--link", "numa"), ("--tolerate", "x")):
        code, line = refused(run, *option)
        assert code == 2
        assert line == "Error: --tolerate and --link are of a pod: give its number of GPUs\n"


def test_a_wide_table_leaves_nothing_out_whatever_the_terminal(
    run: Run, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "screen_width", lambda: 60)
    api.with_node("a", {"p": 0b1}, mig=7, taints=[{"key": "x", "effect": "NoSchedule"}])
    wide = said(run, "-o", "wide").splitlines()[0]
    assert wide.split() == [
        *("NODE", "PRODUCT", "FREE", "GPUS", "LINKED", "MIG", "FREE", "STATE", "HELD", "BY"),
        "TAINTS",
    ]
    assert "TAINTS" not in said(run)


def test_nodes_sums_and_the_note_stand_apart(run: Run, api: Api) -> None:
    api.with_node("a", {"p": 0b1})
    lines = said(run).splitlines()
    assert [at for at, line in enumerate(lines) if not line] == [2, 5]
    assert lines[3].startswith("PRODUCT")
    assert lines[-1].startswith("Pods that hold GPUs are named")
    place = said(run, "2").splitlines()
    assert place[2] == ""
    assert place[3].startswith("GPU numbers are places in the node's annotation")
