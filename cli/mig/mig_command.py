# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig``: what there is of MIG on this machine, and what could be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from cli.lazy_commands import LazyCommands

COMMANDS: Final[Mapping[str, str]] = {
    "status": "cli.mig.mig_status",
    "explain": "cli.mig.mig_explain",
    "configs": "cli.mig.mig_configs_listing",
    "plan": "cli.mig.mig_plan",
    "apply": "cli.mig.mig_apply",
    "restore": "cli.mig.mig_restore",
    "selftest": "cli.mig.mig_selftest",
    "assert": "cli.mig.mig_assert",
    "export": "cli.mig.mig_export",
    "history": "cli.mig.mig_history",
    "nodes": "cli.mig.cluster.mig_nodes",
    "why": "cli.mig.cluster.mig_why",
    "cancel": "cli.mig.cluster.mig_cancel",
    "rollout": "cli.mig.rollout.rollout_command",
}
"""Subcommand to the module that holds it as ``command``, in the order of the help text."""


class _Mig(LazyCommands):
    modules = COMMANDS


@click.command(
    cls=_Mig,
    epilog="""\b
Words:
  GPU instance      a part of a GPU's memory and engines: created first, at its own place
  compute instance  a part of a GPU instance's multiprocessors; programs open it as a MIG
                    device. No program can use a GPU instance without a compute instance
  memory unit       the unit of places: a GPU has 8 on A100 and H100, 4 on A30
  profile           a size of GPU instances: 3g.20gb has 3 compute slices and about 20 GB

\b
Examples:
  gpuscape mig status                    modes, instances, and programs on them
  gpuscape mig explain                   all profiles, and how many more fit
  gpuscape mig explain 2g.10gb           where an instance may be, and what is in its way
  gpuscape mig configs                   configurations to choose from, and whether they fit
  gpuscape mig plan all-balanced         what it would change, and who would be disturbed
  gpuscape mig apply all-balanced        change it, and leave alone what is in use (beta)
  gpuscape mig selftest                  try layouts on one idle GPU, and undo them (beta)
  gpuscape mig assert all-balanced       whether the GPUs have the layout: exit code 0 or 1
  gpuscape mig export > now.yaml         the current layout, in mig-parted's format
  gpuscape mig nodes                     the cluster's Nodes: desired layouts and phases
  gpuscape mig why gpu-7                 where that Node's change stands, and who is in the way
  gpuscape mig cancel gpu-7              undo what has not begun of it
  gpuscape mig rollout start all-balanced -l pool=a100    a layout for many Nodes
  gpuscape mig status --simulate dgx-a100-mig-mixed

GPU instances are visible only with NVIDIA's capability mig/monitor, which root has.""",
)
def command() -> None:
    """Show how MIG divides GPUs, plan other layouts, and apply them.

    Only apply, restore and selftest change GPUs; cancel and rollout write desired layouts.
    """
