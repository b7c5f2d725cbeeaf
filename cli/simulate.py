# SPDX-License-Identifier: Apache-2.0
"""``gpuscape simulate``: the simulated machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from cli import options, terminal
from cli.lazy_commands import LazyCommands, refuse_options
from cli.terminal import Styled, TextTable
from simulator.description.machine_catalog import load_machine, machine_names

COMMANDS: Final[Mapping[str, str]] = {"serve": "cli.serve_machine"}


class _Simulate(LazyCommands):
    """A group that runs without a subcommand."""

    modules = COMMANDS


@click.command(
    cls=_Simulate,
    invoke_without_command=True,
    epilog="""\b
Examples:
  gpuscape simulate --list
  gpuscape topo --simulate dgx1-v100
  gpuscape discover --simulate ./my-machine.yaml
  gpuscape labels --simulate ./recording.json
  gpuscape simulate serve hgx-h100       for programs that are not ours""",
)
@click.option("--list", "listing", is_flag=True, help="List the machines.")
@options.output("table", "json", "yaml")
@click.pass_context
def command(ctx: click.Context, listing: bool, output: str) -> None:
    """List the machines that --simulate knows, or serve one to other programs.

    --simulate also takes a file: a machine written in the same format, or what
    `gpuscape record` wrote on a real machine.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options(ctx, ctx.invoked_subcommand)
        return
    if not listing:
        raise click.UsageError("Missing option '--list', or the command 'serve'.")
    summaries = {name: load_machine(name).summary for name in machine_names()}
    if output != "table":
        terminal.print_data(summaries, output)
        return
    rows = tuple((Styled(name, "bold"), summary) for name, summary in summaries.items())
    terminal.show_table(TextTable(header=("MACHINE", "WHAT IT IS"), rows=rows))
