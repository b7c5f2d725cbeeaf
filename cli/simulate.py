# SPDX-License-Identifier: Apache-2.0
"""``gpuscape simulate``: the simulated machines."""

from __future__ import annotations

import click

from cli import options, terminal
from cli.terminal import Styled, TextTable
from discovery.simulator.description.machine_catalog import load_machine, machine_names


@click.command(
    epilog="""\b
Examples:
  gpuscape simulate --list
  gpuscape topo --simulate dgx1-v100
  gpuscape discover --simulate ./my-machine.yaml
  gpuscape labels --simulate ./recording.json"""
)
@click.option("--list", "listing", is_flag=True, required=True, help="List the machines.")
@options.output("table", "json", "yaml")
def command(listing: bool, output: str) -> None:  # noqa: ARG001  # the only thing to do as yet
    """List the machines that --simulate knows.

    --simulate also takes a file: a machine written in the same format, or what
    `gpuscape record` wrote on a real machine.
    """
    summaries = {name: load_machine(name).summary for name in machine_names()}
    if output != "table":
        terminal.data(summaries, output)
        return
    rows = tuple((Styled(name, "bold"), summary) for name, summary in summaries.items())
    terminal.show(TextTable(header=("MACHINE", "WHAT IT IS"), rows=rows))
