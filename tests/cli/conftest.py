# SPDX-License-Identifier: Apache-2.0
"""Commands run in this process, on a snapshot given instead of a machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from agent.settings.agent_settings import AgentSettings
from base.settings.version_skew import VARIABLE
from cli import discover, labels
from cli.main import main
from cli.topo import topo_command
from discovery.model import NodeSnapshot

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's environment changes settings or colours."""
    for name in (
        *("NODE_NAME", "NO_COLOR", "FORCE_COLOR", "GPUSCAPE_CONFIG", "GPUSCAPE_SIMULATE"),
        VARIABLE,
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Commands that set the log up leave it as it was."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``gpuscape`` with arguments; ``sees`` is the machine, or the error of looking at it."""

    def run(*arguments: str, sees: NodeSnapshot | Exception | None = None) -> Result:
        def take_snapshot(settings: AgentSettings, plugin: object = None) -> NodeSnapshot:
            del settings, plugin
            if isinstance(sees, NodeSnapshot):
                return sees
            raise sees or AssertionError("this command should not look at a machine")

        for module in (discover, labels, topo_command):
            monkeypatch.setattr(module, "take_snapshot", take_snapshot)
        return CliRunner().invoke(main, arguments)

    return run
