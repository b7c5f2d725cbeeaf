# SPDX-License-Identifier: Apache-2.0
"""``gpuscape agent``: settles the settings and hands over to the agent."""

from __future__ import annotations

import click

from agent.process_control import under_signals
from agent.settings.agent_settings import AGENT_SETTINGS
from cli import options
from cli.options import Load


@click.command(
    cls=options.BySubject,
    epilog="""\b
Examples:
  gpuscape agent                       in a pod, as the DaemonSet runs it
  gpuscape agent --kubeconfig ~/.kube/config --node-name worker-3
  gpuscape agent --standalone
  gpuscape agent --standalone --simulate hgx-h100 --listen 127.0.0.1:0
  gpuscape agent --standalone --feature-file \\
      /etc/kubernetes/node-feature-discovery/features.d/gpuscape
  GPUSCAPE_LOG_FORMAT=json gpuscape agent --config agent.yaml

\b
Signals:
  SIGTERM, SIGINT   end it within 5 s; labels stay
  SIGHUP            reads the settings file again; with a mistake in it the old settings stay
  SIGUSR1           gives every GPU handle back, for a driver upgrade or a MIG change
  SIGUSR2           takes them again

\b
Exit codes:
  0   ended by a signal
  2   bad input: options, settings or files
  70  a part of the agent stood still, as the log says: a defect, or a file that blocks
  75  in a container, the injected driver library was missing or mismatched for 60 s:
      start a new container to get the right one

Durations are written 500ms, 60s, 1m30s, or as plain seconds.""",
)
@options.program_settings(AGENT_SETTINGS)
def command(load: Load) -> None:
    """Run the node agent: read the GPUs again and again, label the Node, serve metrics.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    with under_signals() as control:
        load()  # a mistake in the settings shows at once
        from agent.agent_program import run

        control.leave(run(load, control))
