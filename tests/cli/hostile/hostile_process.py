# SPDX-License-Identifier: Apache-2.0
"""``gpuscape`` in a cluster and on a machine where every text is hostile.

As a program: the first argument is ``readers``, or ``printers``: then readers refuse nothing, so
that what prints has to hold alone; each of the others is a command, words with blanks between.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from unittest import mock

import msgspec

from api import (
    keys,
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    names,
    state_annotation,
    topology_annotation,
)
from cli.main import main as gpuscape_main
from discovery.model import NodeSnapshot
from kube.api import DEPLOYMENTS, LEASES, NODES, PODS
from kube.lease import micro_time
from tests import build
from tests.cli.hostile.hostile_documents import PAYLOADS, hostile_documents, text_places
from tests.fakes.api import FakeApi
from tests.scheduler import fleets

ON_NODES: Final[Mapping[str, Any]] = {
    keys.TOPOLOGY: topology_annotation.json_schema(),
    keys.MIG_STATUS: mig_status_annotation.json_schema(),
    keys.MIG_REQUEST: mig_request_annotation.json_schema(),
    keys.MIG_PERMIT: mig_permit_annotation.json_schema(),
}
"""Annotation to its schema."""
POD: Final = "hostile-pod"
SEPARATOR: Final = "<<<<< next command >>>>>"


class Cluster(FakeApi):
    """A cluster that one command after the other uses."""

    def close(self) -> None:
        """The next command goes on."""


def hostile_annotations() -> Iterator[tuple[str, str]]:
    """Key and text of every hostile annotation of Nodes."""
    for key, schema in ON_NODES.items():
        for each in hostile_documents(schema):
            yield key, json.dumps(each.content)
        yield from ((key, payload) for payload in PAYLOADS)
    for key in (keys.MIG_LAYOUT, keys.RELEASE, keys.DRAIN, keys.MIG_LAYOUT_BEFORE):
        yield from ((key, payload) for payload in PAYLOADS)


def cluster() -> Cluster:
    """A Node for each text that may be hostile in annotations, in a Lease, or in the Node."""
    api = Cluster()
    api.server.serve(DEPLOYMENTS)
    for number, (key, text) in enumerate(hostile_annotations()):
        _add_node(api, f"annotated-{number}", {key: text})
    states = list(hostile_documents(state_annotation.json_schema()))
    for number, state in enumerate(states):
        _add_node(api, f"leased-{number}", {}, state=json.dumps(state.content))
    for number, payload in enumerate(PAYLOADS):
        _add_node(api, f"kubelet-{number}", {}, texts=payload)
        _add_pod(api, payload, number)
    return api


def _add_node(
    api: Cluster, name: str, extra: Mapping[str, str], *, state: str = "", texts: str = "ok"
) -> None:
    annotations = {keys.TOPOLOGY: fleets.topology(fleets.MACHINE)} | dict(extra)
    labels = {"pool": "a", keys.GPU_PRODUCT: texts, keys.MIG_CONFIG: texts}
    node = {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"taints": [{"key": texts, "value": texts, "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8", "pods": "110", f"nvidia.com/mig-{texts}": "1"},
            "capacity": {"nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "False", "reason": texts, "message": texts},
                {"type": texts, "status": "True", "reason": texts, "message": texts},
            ],
            "nodeInfo": {"kubeletVersion": texts, "osImage": texts, "kernelVersion": texts},
        },
    }
    api.server.create(NODES, node)
    lease = fleets.lease(pods={}, of=fleets.gen(fleets.MACHINE))
    held = {keys.STATE: state} if state else lease["metadata"]["annotations"]
    renewed = {**lease["spec"], "renewTime": micro_time(datetime.now(UTC)), "holderIdentity": texts}
    api.server.create(
        LEASES,
        {"metadata": {"name": names.agent_lease(name), "annotations": held}, "spec": renewed},
        names.NAMESPACE,
    )


def _add_pod(api: Cluster, text: str, number: int) -> None:
    limits = {"nvidia.com/gpu": "2"}
    container = {"name": text, "image": text, "resources": {"limits": limits, "requests": limits}}
    waiting = {"name": text, "state": {"waiting": {"reason": text, "message": text}}}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": text, "message": text}
    pod = {
        "metadata": {"name": f"{POD}-{number}", "annotations": {"gpuscape.io/link": text}},
        "spec": {"containers": [container], "schedulerName": text, "nodeSelector": {text: text}},
        "status": {
            "phase": "Pending",
            "conditions": [unscheduled],
            "containerStatuses": [waiting],
        },
    }
    api.server.create(PODS, pod, "default")


def snapshot() -> NodeSnapshot:
    """A machine with hostile text wherever a reading is text, payload after payload."""
    plain = json.loads(msgspec.json.encode(build.node([build.gpu(0), build.silent(1)])))
    number = 0
    for place in text_places(plain):
        inner = plain
        for step in place[:-1]:
            inner = inner[step]
        before, inner[place[-1]] = inner[place[-1]], PAYLOADS[number % len(PAYLOADS)]
        try:
            msgspec.json.decode(json.dumps(plain), type=NodeSnapshot)
        except msgspec.ValidationError:  # a list of values, or a pattern
            inner[place[-1]] = before
        else:
            number += 1
    return msgspec.json.decode(json.dumps(plain), type=NodeSnapshot)


def main() -> None:
    """Run the commands, with a line of :data:`SEPARATOR` before each."""
    mode, *commands = sys.argv[1:]
    replaced: dict[str, Any] = {"tests.fakes.validation.check": lambda *_: None}
    if mode == "printers":
        replaced["api.versioned.is_safe"] = lambda _: True
    _replace(replaced)  # no server takes all of it, and some of it gets past any server
    made, machine = cluster(), snapshot()
    client = {"kube.client.connect": made, "kube.client.ApiClient": made}
    reading = {
        f"cli.{module}.take_snapshot": machine
        for module in ("discover", "labels", "topo.topo_command")
    }
    access = {"diagnosis.facts.cluster_facts.cluster_access": None}
    _replace({name: _answering(it) for name, it in (client | reading | access).items()})
    for command in commands:
        sys.stdout.write(f"{SEPARATOR}\n")
        sys.stdout.flush()
        with contextlib.suppress(SystemExit):
            gpuscape_main(command.split(" "))
        sys.stdout.flush()


def _answering(value: object) -> Callable[..., object]:
    return lambda *_, **_more: value


def _replace(found: Mapping[str, object]) -> None:
    for name, value in found.items():
        mock.patch(name, value).start()


if __name__ == "__main__":
    main()
