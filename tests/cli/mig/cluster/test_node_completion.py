# SPDX-License-Identifier: Apache-2.0
"""Shells complete names of Nodes, or nothing, and nothing is printed besides."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from cli.main import main
from cli.mig.cluster import node_completion
from kube.api import NODES
from kube.api_errors import Forbidden
from tests.fakes.api import FakeApi


class Cluster(FakeApi):
    """Three Nodes."""

    def __init__(self) -> None:
        super().__init__(manager="kubectl")
        self.asked: list[Path | None] = []
        for name in ("gpu-7", "gpu-10", "cpu-1"):
            self.server.create(NODES, {"metadata": {"name": name}})

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    def connected(program: str, kubeconfig: Path | None) -> Cluster:
        assert program == "gpuscape-completion"
        made.asked.append(kubeconfig)
        return made

    monkeypatch.setattr(node_completion, "kubeconfig_client", connected)
    return made


def completed(*words: str) -> list[str]:
    """What may stand in place of the last word."""
    *before, last = words
    found = ShellComplete(main, {}, "gpuscape", "").get_completions(before, last)
    return [item.value for item in found]


@pytest.mark.parametrize("command", ["why", "cancel", "nodes"])
def test_nodes_that_start_like_this_are_completed(cluster: Cluster, command: str) -> None:
    assert completed("mig", command, "gpu") == ["gpu-10", "gpu-7"]
    assert completed("mig", command, "x") == []
    assert cluster.asked == [None, None]


@pytest.mark.usefixtures("cluster")
def test_nodes_on_the_line_are_not_offered_again() -> None:
    assert completed("mig", "nodes", "gpu-7", "") == ["cpu-1", "gpu-10"]


def test_the_kubeconfig_on_the_line_is_asked(cluster: Cluster) -> None:
    assert completed("mig", "why", "--kubeconfig", "/x/config", "c") == ["cpu-1"]
    assert cluster.asked == [Path("/x/config")]


def fails(*_: Any, **__: Any) -> Any:
    """As a cluster that may not be read, with words in the log."""
    logging.getLogger("kube").warning("watch lost")
    raise Forbidden("no")


def test_what_fails_completes_nothing_and_prints_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "watch", fails)
    for handler in logging.root.handlers[:]:
        monkeypatch.setattr(handler, "emit", lambda record: click.echo(record.msg, err=True))

    assert completed("mig", "why", "gpu") == []
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == logging.NOTSET


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is left alone."""
    answers = threading.Event()
    monkeypatch.setattr(node_completion, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(
        node_completion, "kubeconfig_client", lambda *_: answers.wait(60) and cluster
    )
    try:
        assert completed("mig", "why", "gpu") == []
    finally:
        answers.set()
