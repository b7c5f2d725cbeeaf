# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig plan``: the steps that a layout needs, like a diff."""

from __future__ import annotations

import click

from agent.single_reading import opened_machine, read_mig_readings
from api.mig_mode_change import ModeChange, ResetFallback
from api.mig_resources import MigStrategy
from cli import options, terminal
from cli.failures import REFUSED
from cli.mig.desired_layouts import WORDS, ReadDesired, layout_argument
from cli.mig.in_use.local_users import local_users
from cli.mig.mode_change_option import mode_change_option
from cli.mig.plan_text import plan_document, show_plan
from cli.options import Load
from mig.mode_permission import ModePermission
from mig.planned_layouts import PlanResult, planned_layouts

DIFFERENT = 1
"""Exit code of a plan with steps under --exit-code; ``diff`` uses the same."""


@click.command(
    epilog=f"""\b
Examples:
  gpuscape mig plan all-balanced
  gpuscape mig plan -f config.yaml inference --strategy mixed
  gpuscape mig plan '{{"4": {{"3g.20gb": 2}}}}' --simulate dgx-a100-mig-mixed
  gpuscape mig plan all-1g.10gb -o json | jq '.steps'

\b
{WORDS}

\b
Each instance has a line: - is destroyed, + is created, and one without a mark is kept: it is not
touched, and neither are the programs on it. ~ is a kept GPU instance in which compute instances
are destroyed or created. The plan disturbs as few programs and pods as any can, then destroys as
few compute instances next to them, then as few instances at all. GPUs that the layout does not
name stay as they are. Programs are those that the driver lists, pods those that the kubelet of
this node has given a device.
On A100 and A30 the driver resets a GPU to turn MIG on or off: all programs and pods on it are
disturbed. With --no-mode-change such a layout is refused, and the command for a person is printed.

\b
Exit codes:
  0  there is a plan, or nothing is to be done
  1  with --exit-code: there is a plan that has steps
  2  bad input: a profile that a GPU does not have, a mistake in the file, ...
  3  a GPU could not be read
  5  refused: there is no way to this layout; the reasons are printed"""
)
@layout_argument
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in MigStrategy]),
    help="The device plugin's strategy: refuse what it cannot serve, and show the resources that"
    " the node will have.",
)
@mode_change_option
@click.option("--spare-busy", is_flag=True, help="Refuse a plan that disturbs a program or a pod.")
@click.option(
    "--exit-code", is_flag=True, help="Exit with 1 where there is something to do, as diff does."
)
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    read_desired: ReadDesired,
    strategy: str | None,
    mode_change: ModeChange,
    fallback: ResetFallback,
    spare_busy: bool,
    exit_code: bool,
    output: str,
) -> None:
    """Show what would change on each GPU for LAYOUT, and who would be disturbed; nothing is done.

    The plan is exact: it has the place of each instance, and if there is none, no order of
    creating instances would succeed either.
    """
    desired = read_desired()
    plugin_strategy = None if strategy is None else MigStrategy(strategy)
    settings = load()
    with opened_machine(settings) as start:
        gpus = desired.needed_gpus(read_mig_readings(start, settings))
        users = local_users(gpus, settings, start)
    planned = planned_layouts(
        gpus,
        desired.layouts(gpus),
        users,
        strategy=plugin_strategy,
        spare_busy=spare_busy,
        modes=ModePermission(by=mode_change, fallback=fallback),
    )
    if output == "table":
        show_plan(planned)
    else:
        terminal.print_data(plan_document(desired.title, planned), output)
    if planned.result is PlanResult.REFUSED:
        ctx.exit(REFUSED)
    if exit_code and planned.result is PlanResult.STEPS:
        ctx.exit(DIFFERENT)
