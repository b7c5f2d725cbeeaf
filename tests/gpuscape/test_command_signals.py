# SPDX-License-Identifier: Apache-2.0
"""Which commands find signals waiting, and which find them as any program does."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cli import main as cli_main
from cli.scheduler import scheduler_command
from gpuscape import __main__ as started

SOON = 30.0
ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def waiting(monkeypatch: pytest.MonkeyPatch, *words: str, before: set[signal.Signals]) -> set[int]:
    """Signals that wait when the command runs; ``before``: when Python starts."""
    found: list[set[int]] = []
    monkeypatch.setattr(started, "isolate", lambda: None)
    monkeypatch.setattr(
        cli_main, "main", lambda: found.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    )
    monkeypatch.setattr(sys, "argv", ["gpuscape", *words])

    def start() -> None:  # the mask is the thread's own, and goes with it
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        started.main()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(start).result(SOON)
    return found.pop()


@pytest.mark.parametrize("before", [set(), ENDING], ids=["installed", "image"])
@pytest.mark.parametrize("command", ["agent", "dcgm-exporter", "scheduler"])
def test_signals_wait_for_commands_that_obey_them(
    monkeypatch: pytest.MonkeyPatch, command: str, before: set[signal.Signals]
) -> None:
    assert waiting(monkeypatch, "--debug", command, before=before) == ENDING


@pytest.mark.parametrize("before", [set(), ENDING], ids=["installed", "image"])
@pytest.mark.parametrize("words", [(), ("--help",), ("discover",), ("simulate", "agent")])
def test_all_other_commands_end_by_signals_as_any_program(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], before: set[signal.Signals]
) -> None:
    assert waiting(monkeypatch, *words, before=before) == set()


@pytest.mark.parametrize("subcommand", sorted(scheduler_command.COMMANDS))
def test_below_scheduler_too(monkeypatch: pytest.MonkeyPatch, subcommand: str) -> None:
    """Whose subcommands are run by a person, and print."""
    found: list[set[int]] = []
    monkeypatch.setattr(
        scheduler_command,
        "refuse_options",
        lambda *_: found.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    )

    def start() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ENDING)
        scheduler_command.command.main([subcommand, "--none"], standalone_mode=False)

    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="--none"):
        pool.submit(start).result(SOON)
    assert found == [set()]
