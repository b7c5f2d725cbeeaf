# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler``: the extender that ranks nodes for kube-scheduler by free linked GPUs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Final

import click
from click.core import ParameterSource

from cli import options
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS, SchedulerSettings

COMMANDS: Final[Mapping[str, str]] = {
    "explain": "cli.scheduler.explain_command",
    "simulate": "cli.scheduler.simulate_placement",
}
"""Subcommand to the module that holds it as ``command``."""


class _Scheduler(options.BySubject, click.Group):
    """A group that runs without a subcommand, and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.command(
    cls=_Scheduler,
    invoke_without_command=True,
    epilog="""\b
Examples:
  gpuscape scheduler --kubeconfig ~/.kube/config
      next to a kube-scheduler on the same machine, which calls http://127.0.0.1:8888/v1
  gpuscape scheduler --listen :8443 --tls-cert-file tls.crt \\
      --tls-private-key-file tls.key --client-ca-file ca.crt
      in a pod, for schedulers that show a certificate of this authority
  gpuscape scheduler explain POD         why each node has its score
  gpuscape scheduler simulate WORKLOAD   what would become of a list of pods

\b
In kube-scheduler's configuration:
  extenders:
  - urlPrefix: http://127.0.0.1:8888/v1   (https and tlsConfig where it is not loopback)
    prioritizeVerb: prioritize
    weight: 10
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: 200ms
    managedResources: [{name: nvidia.com/gpu, ignoredByScheduler: false}]

\b
Paths:
  POST /v1/prioritize       what the scheduler asks
  POST /v1/explain          why: the same body
  GET  /debug/nodes/NAME    what is believed of a node
  GET  /livez /readyz /metrics /openapi.json

SIGTERM and SIGINT end it within 5 s. Exit codes: 0 ended by a signal, 2 bad input.""",
)
@options.program_settings(SCHEDULER_SETTINGS)
@click.pass_context
def command(ctx: click.Context, load: Callable[[], SchedulerSettings]) -> None:
    """Score nodes for a stock kube-scheduler, as its HTTP extender.

    Nodes are preferred whose free GPUs are linked as the pod needs them, and small pods are
    kept from breaking up what large ones need. It never refuses a node: without it, and where
    it knows nothing, the scheduler decides as ever.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx, ctx.invoked_subcommand)
        return
    settings = load()
    from base.log import configure

    configure(settings.log_level, settings.log_format)
    from scheduler.extender.program import run

    sys.exit(run(settings))


def _refuse_options(ctx: click.Context, subcommand: str) -> None:
    """Options in front of a subcommand would do nothing there."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{flag} stands before {subcommand} and does nothing there: put options behind it"
            )
