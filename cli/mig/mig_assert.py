# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig assert``: whether the GPUs have a layout, and what differs."""

from __future__ import annotations

import click

from agent.single_reading import take_mig_readings
from cli import options, terminal
from cli.mig.desired_layouts import WORDS, ReadDesired, layout_argument
from cli.mig.mig_plan import DIFFERENT
from cli.mig.mode_change_option import mode_only_option
from cli.options import Load
from cli.terminal import TextTable
from mig.layout_difference import layout_differences


@click.command(
    "assert",
    epilog=f"""\b
Examples:
  gpuscape mig assert all-balanced
  gpuscape mig assert -f config.yaml -c inference && start-the-work
  gpuscape mig assert all-enabled --mode-only
  gpuscape mig assert -f config.yaml inference --valid-config

\b
{WORDS}

\b
Layouts are compared by meaning: spelling and order do not matter, nor where an instance lies,
unless the layout names a place. GPUs that the layout does not name do not count. A mode that
waits for a reset is not the desired one, and a GPU instance without a compute instance is one too
many.

\b
Exit codes, of which 0 and 1 are those of `nvidia-mig-parted assert`:
  0  every GPU has the desired layout
  1  a GPU differs
  2  bad input: a profile that a GPU does not have, a mistake in the file, ...
  3  a GPU could not be read""",
)
@layout_argument
@mode_only_option("Compare whether MIG is on or off, and no instances.")
@click.option(
    "-a",
    "--valid-config",
    is_flag=True,
    envvar="MIG_PARTED_VALID_CONFIG",
    show_envvar=True,
    help="Check the file and the name alone; no GPU is read.",
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    read_desired: ReadDesired,
    mode_only: bool,
    valid_config: bool,
    output: str,
) -> None:
    """Exit with 0 if the GPUs have LAYOUT, and else with 1 and what differs."""
    desired = read_desired()
    if valid_config:
        return
    gpus = desired.needed_gpus(take_mig_readings(load()))
    layouts = desired.layouts(gpus)
    differences = layout_differences(layouts, gpus, modes_only=mode_only)
    if output != "table":
        document = {"desired": desired.title, "compared": sorted(layouts)}
        terminal.print_data(document | {"differing": differences}, output)
    elif differences:
        rows = tuple(
            (str(difference.index) if position == 0 else "", reason)
            for difference in differences
            for position, reason in enumerate(difference.reasons)
        )
        terminal.show_table(TextTable(header=("GPU", "DIFFERENCE"), rows=rows))
    else:
        count = f"{len(layouts)} GPU{'' if len(layouts) == 1 else 's'}"
        terminal.note(f"As desired: {count}.")
    if differences:
        ctx.exit(DIFFERENT)
