# SPDX-License-Identifier: Apache-2.0
"""The one Event about a pod: it requested linked GPUs and did not get them.

Its name is made from the pod's UID, so that there is one whatever the number of replicas and of
restarts: a replica that comes second finds the Event there.
"""

from __future__ import annotations

from typing import Final

from api import keys, names
from kube.events import EventBudget, Recorder
from placement.masks import members
from scheduler.cluster.predictions import PredictionCheck

REASON: Final = "GpusNotLinked"
ACTION: Final = "Allocating"
BUDGET: Final = EventBudget(burst=50, refill_seconds=5.0)


def record_unlinked(events: Recorder, check: PredictionCheck) -> None:
    """Record that the pod requested linked GPUs and runs on others; never blocks or raises."""
    pod = check.ask
    gpus = ", ".join(map(str, members(check.actual)))
    events.record(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        name=names.pod_event(pod.uid),
        reason=REASON,
        action=ACTION,
        note=(
            f"The pod requests GPUs joined by NVLink ({keys.LINK}=nvlink), but got GPUs {gpus}"
            f" of {check.node}, which are not all joined by it. It runs, but slower. To try again,"
            " delete it."
        ),
        warning=True,
    )
