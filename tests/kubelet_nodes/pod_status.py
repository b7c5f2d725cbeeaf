# SPDX-License-Identifier: Apache-2.0
"""What a kubelet writes into the status of its pods. Pure."""

from __future__ import annotations

from datetime import datetime

from kube.api import Object
from tests.kubelet_nodes.devices import REASON


def is_ended(pod: Object) -> bool:
    """None of its containers runs any more, or will."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_running(pod: Object) -> bool:
    """Its status says so."""
    return (pod.get("status") or {}).get("phase") == "Running"


def running(pod: Object, at: datetime) -> Object:
    """Init containers are done, sidecars and the others run and are ready."""
    now = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    spec = pod["spec"]
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    runs = {"running": {"startedAt": now}}
    conditions = ("Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in conditions
        ],
        "initContainerStatuses": [
            _container(each, runs if each.get("restartPolicy") == "Always" else done)
            for each in spec.get("initContainers", ())
        ],
        "containerStatuses": [_container(each, runs) for each in spec["containers"]],
    }


def refused(why: str, at: datetime) -> Object:
    """The node did not take it, which is final."""
    return {
        "phase": "Failed",
        "reason": REASON,
        "message": f"Pod was rejected: {why}",
        "startTime": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


def _container(spec: Object, state: Object) -> Object:
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": spec["image"],
        "ready": True,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }
