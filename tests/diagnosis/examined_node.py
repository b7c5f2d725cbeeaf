# SPDX-License-Identifier: Apache-2.0
"""A healthy node with all that the doctor looks at, for faults to be planted in.

The machine is simulated below pynvml, the pod-resources socket speaks the kubelet's protocol, the
kubelet's folders have its own formats, and the API server is the one that keeps the contract.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from agent.cluster.confinement import CORE, PROBE
from agent.settings.agent_settings import AgentSettings
from agent.single_reading import take_snapshot
from api import keys, names
from api.actuator.actuator_messages import ActuatorAnswer, StateAnswer, encode_message
from diagnosis.facts.kubelet_facts import REGISTRATION
from diagnosis.facts.local_facts import LocalFacts, read_local_facts
from diagnosis.finding import Examination, examine
from diagnosis.finding_catalog import LOCAL_CHECKS
from discovery.model import NodeSnapshot
from kube.api import EVENTS, LEASES, NODES, PODS, Object
from kube.lease import micro_time
from kubelet.devices_checkpoint import CHECKPOINT
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from simulator.simulation import Simulation
from tests.fakes.api import Call, FakeApi
from tests.kubelet_nodes.checkpoint_file import write_checkpoint
from tests.kubelet_nodes.offer import GPU, Device, Offer, offer
from tests.kubelet_nodes.podresources import PodResourcesServer

MACHINE: Final = "dgx-a100"
NAME: Final = "node-a"
POD_UID: Final = "uid-of-agent"
UNKNOWN_GPU: Final = "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff"
ALL_POLICIES: Final = (*CORE, names.AGENT_EVENT, names.MIG_PERMIT)


@functools.cache
def snapshot_of(machine: str) -> NodeSnapshot:
    """A machine as it is before anything happens to it."""
    return take_snapshot(AgentSettings(simulate=machine, node_name=NAME))


class ExaminedNode:
    """One node; :meth:`close` ends its sockets."""

    def __init__(self, folder: Path, machine: str = MACHINE) -> None:
        self.folder = folder
        self.host = folder / "host"
        self.snapshot = snapshot_of(machine)
        self.machine = Simulation.create(machine, folder / "machine")
        self.api = FakeApi()
        self.settings = AgentSettings(
            simulate=str(self.machine.state_file),
            host_root=self.host,
            node_name=NAME,
            pod_uid=POD_UID,
            pod_resources_socket=folder / "pr/kubelet.sock",
            actuator_socket=folder / "a.sock",
            deadline_seconds=1.0,
            init_deadline_seconds=1.0,
        )
        self.change: Callable[[LocalFacts], LocalFacts] = lambda facts: facts
        """Of facts that have been read."""
        self._open = contextlib.ExitStack()
        self._plugin = self._open.enter_context(contextlib.ExitStack())
        self.kubelet = PodResourcesServer(folder / "pr")
        self.kubelet.start()
        self._open.callback(self.kubelet.stop)
        self.offered: Offer = {GPU: offer(self.snapshot).get(GPU, ())}
        self.shows(self.offered)
        self.configures("none")
        registration = (self.host / CHECKPOINT).with_name(REGISTRATION)
        self._open.enter_context(listening(registration))
        self.has_plugin()
        self.in_cluster()

    def close(self) -> None:
        """End what it serves."""
        self._open.close()

    def facts(self) -> LocalFacts:
        """What the doctor reads of it."""
        return self.change(read_local_facts(self.settings, self.api))

    def examined(self) -> Examination:
        """What the doctor makes of it."""
        return examine(LOCAL_CHECKS, self.facts())

    @property
    def bus_id(self) -> str:
        """Of the first GPU."""
        return self.snapshot.gpus[0].bus_id

    @property
    def uuid(self) -> str:
        """Of the first GPU."""
        return self.snapshot.gpus[0].uuid or ""

    def with_settings(self, **settings: Any) -> None:
        """Other settings of the agent."""
        self.settings = replace(self.settings, **settings)

    # the kubelet

    def shows(self, offered: Offer, held: Mapping[str, Collection[str]] | None = None) -> None:
        """The kubelet has these devices, and pods these of them."""
        self.kubelet.show(offered, ())
        ids = {name: [one.id for one in devices] for name, devices in offered.items()}
        write_checkpoint(self._made_host(), held or {}, offered=ids)

    def without_first(self) -> Offer:
        """What is offered, but for the first GPU."""
        return {GPU: self.offered[GPU][1:]}

    def with_unknown(self) -> Offer:
        """What is offered, and a GPU that is not there."""
        return {GPU: (*self.offered[GPU], Device(id=UNKNOWN_GPU, bus_id="0000:ff:00.0"))}

    def configures(self, policy: str, more: str = "") -> None:
        """The kubelet's TopologyManager."""
        file = self.host / "var/lib/kubelet/config.yaml"
        file.write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            f"topologyManagerPolicy: {policy}\n{more}"
        )

    def has_plugin(self) -> None:
        """The device plugin listens."""
        self._plugin.enter_context(listening(self._plugin_socket))

    def loses_plugin(self) -> None:
        """It is gone; its socket stays, as after SIGKILL."""
        self._plugin.close()

    @property
    def _plugin_socket(self) -> Path:
        return (self.host / CHECKPOINT).with_name("nvidia-gpu.sock")

    def _made_host(self) -> Path:
        (self.host / CHECKPOINT).parent.mkdir(parents=True, exist_ok=True)
        return self.host

    def answers_as_actuator(self, answer: ActuatorAnswer | None = None) -> None:
        """An actuator is on its socket."""
        line = encode_message(answer or StateAnswer()) + b"\n"
        self._open.enter_context(listening(self.settings.actuator_socket, line))

    # the cluster

    def in_cluster(self) -> None:
        """A Node with the agent's labels and Lease, policies in force, and no more rights."""
        labels = decide_labels(self.snapshot, LabelSettings()).values
        self.api.server.create(NODES, node_object(labels, len(self.offered[GPU])))
        self.makes_lease()
        self.enforces(*ALL_POLICIES)
        for verb, plural in (("get", "secrets"), ("delete", "pods"), ("delete", "nodes")):
            self.api.server.denied.add((self.api.user, verb, plural))

    def makes_lease(self, *, holder: str = POD_UID, age_seconds: float = 10.0) -> None:
        """The agent's Lease, renewed so long ago."""
        at = micro_time(datetime.fromtimestamp(time.time() - age_seconds, UTC))
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 180, "renewTime": at}
        if not holder:
            spec.pop("holderIdentity")
        with contextlib.suppress(Exception):
            self.api.server.delete(LEASES, names.agent_lease(NAME), names.NAMESPACE)
        lease = {"metadata": {"name": names.agent_lease(NAME)}, "spec": spec}
        self.api.server.create(LEASES, lease, names.NAMESPACE)

    def enforces(self, *policies: str) -> None:
        """These policies refuse what they are to refuse; others let all through."""
        self.api.heal()
        for policy in policies:
            self.api.refuse(policy, _REFUSALS[policy])

    def patches(self, **metadata: Mapping[str, str | None]) -> None:
        """Somebody changes labels or annotations of the Node."""
        self.api.server.patch(NODES, NAME, {"metadata": metadata})

    def reports(self, **status: Any) -> None:
        """The kubelet changes the Node's status."""
        self.api.server.patch(NODES, NAME, {"status": status}, status=True)

    def runs(self, name: str, namespace: str = "gpu-operator") -> None:
        """A pod on the node."""
        self.api.server.add_namespace(namespace)
        pod = {"metadata": {"name": name}, "spec": {"nodeName": NAME}}
        self.api.server.create(PODS, pod, namespace)


def node_object(labels: Mapping[str, str], gpus: int) -> Object:
    """A Node as the API server has it."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    return {
        "metadata": {"name": NAME, "labels": dict(labels)},
        "status": {
            "allocatable": amounts,
            "capacity": dict(amounts),
            "nodeInfo": {"kubeletVersion": "v1.37.1", "containerRuntimeVersion": "containerd://2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@contextlib.contextmanager
def listening(path: Path, answer: bytes = b"") -> Iterator[None]:
    """A Unix socket that takes connections, and gives each the answer; the file stays."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    if answer:
                        client.recv(1 << 16)
                        client.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def _is_probe(call: Call) -> bool:
    metadata = (call.body or {}).get("metadata") or {}
    return any(PROBE in (metadata.get(part) or {}) for part in ("labels", "annotations"))


_REFUSALS: Final[Mapping[str, Callable[[Call], bool]]] = {
    names.AGENT_FLOOR: lambda call: call.manager != names.AGENT,
    names.AGENT_NODE: lambda call: call.resource == NODES and _is_probe(call),
    names.AGENT_LEASE: lambda call: (
        call.resource == LEASES and call.verb == "create" and call.name != names.agent_lease(NAME)
    ),
    names.AGENT_EVENT: lambda call: call.resource == EVENTS,
    names.MIG_PERMIT: lambda call: keys.MIG_PERMIT in str(call.body),
}
