# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler``: the extender that ranks nodes for kube-scheduler by free linked GPUs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

import click

from base.process import process_signals
from cli import options
from cli.lazy_commands import LazyCommands, refuse_options
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS, SchedulerSettings

COMMANDS: Final[Mapping[str, str]] = {
    "explain": "cli.scheduler.explain_command",
    "simulate": "cli.scheduler.simulate_placement",
    "certificates": "cli.scheduler.certificates_command",
}
"""Subcommand to the module that holds it as ``command``."""


class _Scheduler(options.BySubject, LazyCommands):
    """A group that runs without a subcommand."""

    modules = COMMANDS


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
        process_signals.release_signals()
        refuse_options(ctx, ctx.invoked_subcommand)
        return
    settings = load()
    from cli.program_log import begin_log

    begin_log(settings.log_level, settings.log_format)
    from scheduler.extender.extender_program import run

    sys.exit(run(settings))
