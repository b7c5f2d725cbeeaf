# SPDX-License-Identifier: Apache-2.0
"""An admin's switches for the coordinator, annotations of its Lease."""

from __future__ import annotations

import contextlib
from pathlib import Path

from api import keys, names
from base.errors import BadInput
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.rollout.chosen_nodes import PROGRAM
from kube.api import LEASES
from kube.api_errors import NotFound


def switch_coordinator(
    kubeconfig: Path | None, namespace: str, *, paused: bool, forget: bool = False
) -> None:
    """Pause the coordinator or let it go on; ``forget``: clear its record of how changes ended.

    Raises BadInput where there is no coordinator.
    """
    annotations: dict[str, str | None] = {keys.MIG_PAUSED: "true" if paused else None}
    if forget:
        annotations[keys.MIG_ROLLOUTS] = None
    with contextlib.closing(kubeconfig_client(PROGRAM, kubeconfig)) as api:
        try:
            api.patch(
                LEASES,
                names.COORDINATOR_LEASE,
                {"metadata": {"annotations": annotations}},
                namespace=namespace,
            )
        except NotFound as error:
            raise BadInput(
                f"there is no Lease {names.COORDINATOR_LEASE} in namespace {namespace}: has a"
                " coordinator run there? (-n NAME)"
            ) from error
