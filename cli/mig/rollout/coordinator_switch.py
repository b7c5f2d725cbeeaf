# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout pause`` and ``resume``: an admin's switches for the coordinator."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from api import keys, names
from base.errors import BadInput
from cli import options, terminal
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.cluster.coordinator_notes import namespace_option
from cli.mig.rollout.chosen_nodes import PROGRAM
from cli.options import Load
from kube.api import LEASES
from kube.api_errors import NotFound


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout pause
  gpuscape mig rollout resume

\b
It writes gpuscape.io/mig-paused to the coordinator's Lease, so it outlives every restart. A node
that has begun goes on to its end."""
)
@namespace_option
@options.settings("kubeconfig")
def pause_rollouts(load: Load, namespace: str) -> None:
    """Have no further Node of the cluster begin a MIG change."""
    _annotate_lease(load().kubeconfig, namespace, {keys.MIG_PAUSED: "true"})
    terminal.note("Paused: no further node begins. Those that have begun go on to their end.")


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout resume
  gpuscape mig rollout resume --after-failures     go on where failures stopped a rollout

\b
With --after-failures the coordinator forgets how changes ended so far: rollouts that failures have
stopped go on, with a canary of their own again."""
)
@click.option(
    "--after-failures", is_flag=True, help="Let rollouts that failures have stopped go on as well."
)
@namespace_option
@options.settings("kubeconfig")
def resume_rollouts(load: Load, namespace: str, after_failures: bool) -> None:
    """Have MIG changes begin again after a pause, or after failures."""
    removed = (keys.MIG_PAUSED, *((keys.MIG_ROLLOUTS,) if after_failures else ()))
    _annotate_lease(load().kubeconfig, namespace, dict.fromkeys(removed))
    terminal.note("Resumed.")


def _annotate_lease(
    kubeconfig: Path | None, namespace: str, annotations: dict[str, str | None]
) -> None:
    """Write annotations of the coordinator's Lease; None removes one.

    Raises BadInput where there is no coordinator.
    """
    patch = {"metadata": {"annotations": annotations}}
    with contextlib.closing(kubeconfig_client(PROGRAM, kubeconfig)) as api:
        try:
            api.patch(LEASES, names.COORDINATOR_LEASE, patch, namespace=namespace)
        except NotFound as error:
            raise BadInput(
                f"there is no Lease {names.COORDINATOR_LEASE} in namespace {namespace}: has a"
                " coordinator run there? (-n NAME)"
            ) from error
