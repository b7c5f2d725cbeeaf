# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig apply``: brings GPUs to a layout, and leaves instances in use alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from actuator.worker_messages import ChangeRequest
from agent.single_reading import opened_machine, read_mig_readings
from api.mig_mode_change import ModeChange, ResetFallback
from api.mig_resources import MigStrategy
from cli import options, terminal
from cli.agreement import require_agreement
from cli.failures import REFUSED, CommandFailure
from cli.mig.desired_layouts import WORDS, ReadDesired, layout_argument
from cli.mig.hooks_file import (
    BEFORE_CONFIG,
    BEFORE_MODE,
    EXIT,
    START,
    HookFailed,
    Hooks,
    read_hooks,
)
from cli.mig.in_use.busy_wait import BusyWait, wait_option
from cli.mig.in_use.local_users import local_users
from cli.mig.mode_change_option import mode_change_option, mode_only_option
from cli.mig.plan_text import plan_document, show_plan
from cli.mig.running_actuator import refuse_owned_journal
from cli.mig.running_change import (
    EXIT_CODES,
    change_end_document,
    change_exit_code,
    journal_folder,
    journal_option,
    refuse_unended,
    run_change_to_end,
    show_change_end,
    show_problems,
    verbose_option,
)
from cli.options import Load
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, current_layout
from mig.mode_permission import ModePermission
from mig.planned_layouts import PlanResult, planned_layouts
from mig.planner import MigPlan
from mig.steps import SetMode


@click.command(
    epilog=f"""\b
Examples:
  gpuscape mig apply all-balanced
  gpuscape mig apply -f config.yaml -c inference --yes
  gpuscape mig apply '{{"4": {{"3g.20gb": 2}}}}' --strategy mixed
  gpuscape mig apply all-balanced --wait 2h --yes
  gpuscape simulate serve dgx-a100-mig-mixed --directory /tmp/machine
      and then, in another shell:
      gpuscape mig apply '{{"4": {{"3g.20gb": 2}}}}' --simulate /tmp/machine/state.json

\b
{WORDS}

\b
Beta on a model until `gpuscape mig selftest` has passed on one GPU of it. So far it was tested on
simulated GPUs only; it has changed no real GPU.

\b
The command shows the plan like `gpuscape mig plan`, and asks for confirmation unless --yes is
given. Instances that stay are not touched. In the way are: a program that uses an instance to be
destroyed; for a change of the mode also a program that only has the device file open; and a pod to
which the kubelet of this node has given a device, whether or not it runs. Then the plan is refused
and lists these device users. With --wait the command checks again until they are gone, and changes
nothing meanwhile. On a node of a cluster, cordon the node first, so that no new pods come.
On A100 and A30 the driver resets a GPU to turn MIG on or off. The reset fails while any program
has the GPU open, such as DCGM: then the previous layout is restored, and the reason names the
program. The previous layout is also restored if the driver makes no reset; with --allow-reset
nvidia-smi makes it. With --no-mode-change a layout that needs a reset is refused.
Each GPU is changed by itself, one after the other. It has one of three outcomes, whatever happens:
applied, rolled back, or stuck, where neither layout can be reached. If one GPU fails, the others
get the desired layout all the same.
Ctrl-C, a killed command and a lost terminal do not stop a change halfway. Two changes at a time are
refused: a change holds the lock of the journal's folder. If an actuator runs on the node, this
command is refused: annotate the Node with gpuscape.io/mig-layout, or stop the actuator's container
first.
A hooks file has commands by name: apply-start, pre-apply-mode and pre-apply-config before the
change, if it has such steps, and apply-exit after it, whatever its outcome, if apply-start
succeeded. A hook that fails before the change ends the command. Device users are checked after
these hooks, so that hooks can end them.
With --simulate a state file is changed; a machine given by name is created, changed and forgotten.

\b
Exit codes:
  0  every GPU has the desired layout, whether or not a step was needed
  1  something unexpected: a bug
  2  bad input: a profile that a GPU does not have, a mistake in the file, a journal that is not
     writable, ...
  3  a GPU could not be read; nothing was changed
{EXIT_CODES}"""
)
@layout_argument
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in MigStrategy]),
    help="The device plugin's strategy: refuse what it cannot serve.",
)
@mode_only_option("Set the desired MIG mode, and leave instances as they are.")
@click.option(
    "-k",
    "--hooks-file",
    metavar="FILE",
    envvar="MIG_PARTED_HOOKS_FILE",
    show_envvar=True,
    help="Commands to run around the change, in mig-parted's format.",
)
@mode_change_option
@wait_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@journal_option
@verbose_option
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    read_desired: ReadDesired,
    strategy: str | None,
    mode_only: bool,
    hooks_file: str | None,
    mode_change: ModeChange,
    fallback: ResetFallback,
    wait: float,
    yes: bool,
    journal: Path | None,
    verbose: bool,
    output: str,
) -> None:
    """Bring the GPUs to LAYOUT, and leave alone what is in use (beta)."""
    desired = read_desired()
    hooks = None if hooks_file is None else read_hooks(hooks_file)
    settings = load()
    plugin_strategy = None if strategy is None else MigStrategy(strategy)
    with opened_machine(settings) as start:
        folder = journal_folder(journal, start)
        # Hooks may end programs that are in the way; the change is planned again after them.
        spare_busy = hooks is None
        busy_wait, planned = BusyWait(wait), None
        while planned is None or busy_wait.wait_again(planned.plan_or_refusal):
            refuse_owned_journal(folder, start)
            gpus = desired.needed_gpus(read_mig_readings(start, settings))
            layouts = desired.layouts(gpus)
            refuse_unended(folder, layouts.keys())
            if mode_only:
                layouts = _modes(layouts, gpus)
            planned = planned_layouts(
                gpus,
                layouts,
                local_users(gpus, settings, start),
                strategy=plugin_strategy,
                spare_busy=spare_busy,
                modes=ModePermission(by=mode_change, fallback=fallback),
            )
        document = plan_document(desired.title, planned)
        if output == "table":
            show_plan(planned)
        if planned.result is PlanResult.REFUSED:
            if output != "table":
                terminal.print_data(document | change_end_document(None), output)
            ctx.exit(REFUSED)
        as_is = planned.result is PlanResult.NOTHING
        if not as_is:  # else the layout is seen and remembered
            purpose = " to apply this plan"
            require_agreement("Apply this plan?", purpose=purpose, yes=yes, output=output)
        request = ChangeRequest(
            desired=dict(planned.layouts),
            origin=desired.title,
            strategy=plugin_strategy,
            as_is=as_is,
            mode_change=mode_change,
            fallback=fallback,
        )
        with _hooked(None if as_is else hooks, ctx, planned.plan):
            result = run_change_to_end(request, start=start, journal=folder, verbose=verbose)
            while busy_wait.wait_again(result.refusal):  # somebody came after the plan was made
                result = run_change_to_end(request, start=start, journal=folder, verbose=verbose)
    if output == "table":
        if not as_is or result.refusal is not None:
            show_change_end(result, folder)
        if result.refusal is not None:
            show_plan(replace(planned, plan_or_refusal=result.refusal))
        show_problems(result)
    else:
        terminal.print_data(document | change_end_document(result), output)
    ctx.exit(change_exit_code(result))


@contextmanager
def _hooked(hooks: Hooks | None, ctx: click.Context, plan: MigPlan | None) -> Iterator[None]:
    """Run hooks before and after the block. Raises CommandFailure where a hook before it fails."""
    if hooks is None or plan is None:
        yield
        return
    names = ("config_file", "selected_config", "hooks_file")
    variables = {f"MIG_PARTED_{name.upper()}": ctx.params[name] or "" for name in names}
    mode_only = bool(ctx.params["mode_only"])
    variables["MIG_PARTED_MODE_CHANGE_ONLY"] = str(mode_only).lower()
    variables["MIG_PARTED_SKIP_RESET"] = "true"
    modes = [step for step in plan.steps if isinstance(step, SetMode)]

    def run_before(name: str) -> None:
        try:
            hooks.run(name, variables)
        except HookFailed as error:
            raise CommandFailure(f"nothing was changed: {error}", REFUSED) from error

    run_before(START)
    try:
        if modes:
            run_before(BEFORE_MODE)
        if len(modes) < len(plan.steps) and not mode_only:
            run_before(BEFORE_CONFIG)
        yield
    finally:
        try:
            hooks.run(EXIT, variables)
        except HookFailed as error:
            terminal.note(f"Look at this: {error}", err=True)


def _modes(layouts: Mapping[str, GpuLayout], gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
    """Current layouts with the modes of ``layouts``; empty where a mode changes."""
    current = {gpu.uuid: current_layout(gpu, exact=True) for gpu in gpus}
    return {
        uuid: current[uuid] if current[uuid].mig == layout.mig else GpuLayout(mig=layout.mig)
        for uuid, layout in layouts.items()
    }
