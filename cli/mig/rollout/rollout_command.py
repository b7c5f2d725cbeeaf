# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout``: ask many Nodes for a MIG layout, pause, go on, take it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from cli.lazy_commands import LazyCommands

COMMANDS: Final[Mapping[str, str]] = {
    "plan": "cli.mig.rollout.rollout_plan",
    "start": "cli.mig.rollout.rollout_start:start_rollout",
    "undo": "cli.mig.rollout.rollout_start:undo_rollout",
    "pause": "cli.mig.rollout.coordinator_switch:pause_rollouts",
    "resume": "cli.mig.rollout.coordinator_switch:resume_rollouts",
}
"""Subcommand to the module that holds it, in the order of the help text."""


class _Rollout(LazyCommands):
    modules = COMMANDS


@click.command(
    cls=_Rollout,
    epilog="""\b
Examples:
  gpuscape mig rollout plan all-balanced -l pool=a100      what it would do; nothing is written
  gpuscape mig rollout start all-balanced -l pool=a100
  gpuscape mig nodes -l pool=a100 --watch            how far each node is
  gpuscape mig rollout pause                         no further node begins
  gpuscape mig rollout undo -l pool=a100             the previous desired layouts

\b
The commands write what an admin could write with kubectl: annotations of Nodes, with your own
rights. The coordinator decides how many nodes change at a time, in which order, and how their pods
leave (docs/mig.md).""",
)
def command() -> None:
    """Roll a MIG layout out to many Nodes; plan, pause, resume and undo it."""
