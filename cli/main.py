# SPDX-License-Identifier: Apache-2.0
"""The command ``gpuscape``: finds the subcommand and loads nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from cli.failures import one_sentence
from cli.lazy_commands import LazyCommands

COMMANDS: Mapping[str, str] = {
    "discover": "cli.discover",
    "top": "cli.top.top_command",
    "topo": "cli.topo.topo_command",
    "labels": "cli.labels",
    "mig": "cli.mig.mig_command",
    "agent": "cli.programs.agent_command",
    "actuator": "cli.programs.actuator_command",
    "devices": "cli.programs.devices_command",
    "dcgm-exporter": "cli.dcgm_exporter.dcgm_exporter_command",
    "coordinator": "cli.programs.coordinator_command",
    "scheduler": "cli.scheduler.scheduler_command",
    "compare": "cli.exporter_comparison.compare_command",
    "free": "cli.free.free_command",
    "check-config": "cli.config_check.check_config_command",
    "doctor": "cli.doctor.doctor_command",
    "record": "cli.record",
    "simulate": "cli.simulate",
    "uninstall": "cli.uninstall.uninstall_command",
    "completion": "cli.completion",
}
"""Subcommand to the module that holds it as ``command``, in the order of the help text."""

_GROUPS = ("mig", "scheduler", "doctor", "simulate")
"""Commands with subcommands, which their modules have as ``COMMANDS``."""


class _Commands(LazyCommands):
    """The commands of gpuscape; each failure is shown as one sentence."""

    modules = COMMANDS

    def elsewhere(self, name: str) -> str | None:
        """The hint that a group has a subcommand of this name; None where no group has."""
        alike = [
            f"'{group} {name}'"
            for group in _GROUPS
            if name in importlib.import_module(COMMANDS[group]).COMMANDS
        ]
        return f"No such command {name!r}. Did you mean {' or '.join(alike)}?" if alike else None

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with one_sentence(debug=False):  # help and version are printed in here
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with one_sentence(debug=ctx.params["debug"]):
            return super().invoke(ctx)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  gpuscape discover                      the GPUs of this machine
  gpuscape top                           how busy they are, live
  gpuscape topo --simulate dgx-a100      the link matrix of a simulated DGX A100
  gpuscape labels --explain              why each label is there, or is not
  gpuscape mig status                    MIG modes, instances and who uses them
  gpuscape agent --standalone            serve metrics on port 9400
  gpuscape compare old:9400 new:9400     whether two exporters agree
  gpuscape free                          free GPUs of the cluster, node by node
  gpuscape check-config plugin.yaml      whether a configuration file is right
  gpuscape doctor                        what is wrong on this node, and how to mend it

\b
Exit codes:
  0    done; a machine with a driver and no GPU is an answer too
  1    something unexpected: a bug; from compare and mig assert, differences;
       from doctor, findings; from check-config, a file that is refused
  2    bad input: options, settings, files that cannot be read or written
  3    no NVIDIA driver answers, or not in time, or not all that the command needs
  4    an endpoint or the cluster's API server could not be read
  5    refused: nothing was changed
  6    a MIG change failed and was rolled back
  7    a MIG change is stuck, or was stopped before its end
  141  whoever read the output has closed the pipe

Options can also stand in the environment or in a settings file: see `gpuscape agent --help`.""",
)
@click.option("--debug", is_flag=True, help="Show Python's trace before the error's sentence.")
@click.version_option(package_name="gpuscape", message="gpuscape %(version)s")
def main(debug: bool) -> None:  # the group reads it
    """Show this node's GPU landscape: GPUs, NVLink matrix, node labels and metrics.

    GPUs are read through NVML, the NVIDIA driver's own library. Nothing is changed there but by
    `gpuscape mig apply` and `restore`.
    Without NVIDIA hardware, --simulate MACHINE shows one of the simulated machines.
    """
