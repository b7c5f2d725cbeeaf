"""A cluster to play with: ``make cluster`` runs ``python -m tests.kubelet.play``.

    python -m tests.kubelet.play [MACHINE …]      which machines the nodes are

A real control plane with the scheduler, the agent's manifests, a simulated node with a fake
kubelet for each machine, and a real agent on each. It ends, and leaves nothing behind, with
Ctrl-C, SIGTERM, or when it is killed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from discovery.errors import BadInput
from discovery.simulator.catalog import load_machine
from discovery.simulator.simulation import Simulation
from labelers import keys, names
from labelers.settings import MigStrategy
from tests.agent.processes import AgentProcess, until
from tests.cluster.agents import Site, agent, has_topology
from tests.controlplane import prepare
from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, KUBERNETES
from tests.controlplane.plane import Plane
from tests.kubelet.allocator import Allocator
from tests.kubelet.kubelet import Kubelets

MACHINES = ("dgx-a100", "hgx-h100", "a30-pair")
BUILT = f"etcd,kubernetes-{CONTROLLER_MANAGER_MINOR},allocator"
LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", keys.NVLINK_CLASS, keys.HEALTH)

POD = """\
apiVersion: v1
kind: Pod
metadata: {generateName: two-gpus-}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: none
    resources: {limits: {nvidia.com/gpu: 2}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs."""

    kubeconfig: Path
    kubectl: Path
    pod: Path
    """A manifest to try."""
    agents: dict[str, AgentProcess]
    """By node."""


def main(machines: Sequence[str]) -> int:
    """Run it until somebody ends it; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machines = machines or MACHINES
    try:
        for machine in machines:
            load_machine(machine)  # before anything is built or started
        if code := prepare.main(["--only", BUILT]):
            return code
        with started(machines) as cluster:
            prepare.say(advice(cluster))
            return watch(cluster)
    except BadInput as error:
        prepare.say(str(error))
        return 2
    except KeyboardInterrupt:
        prepare.say("ended")
        return 0


@contextlib.contextmanager
def started(machines: Sequence[str]) -> Iterator[Cluster]:
    """The cluster, while the block lasts: every agent has published when it begins."""
    folder = Path(tempfile.mkdtemp(prefix="gpuscape-cluster-"))
    with contextlib.ExitStack() as running:
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        prepare.say("starting the control plane")
        plane = running.enter_context(
            Plane.start(folder / "plane", node_lifecycle=True, scheduler=True)
        )
        plane.programs.remove(folder)  # that is done even when we are killed
        site = Site.create(plane, names.NAMESPACE)
        allocator = running.enter_context(Allocator())
        kubelets = running.enter_context(Kubelets(plane, allocator, folder / "kubelets"))
        agents = {}
        for number, machine in enumerate(machines):
            name = machine if machine not in agents else f"{machine}-{number}"
            prepare.say(f"starting node {name}")
            agents[name] = running.enter_context(
                _node(site, kubelets, machine, name, folder / name)
            )
        until(lambda: all(has_topology(site, name) for name in agents))
        pod = folder / "two-gpus.yaml"
        pod.write_text(POD, encoding="utf-8")
        yield Cluster(
            kubeconfig=plane.kubeconfig(),
            kubectl=binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl",
            pod=pod,
            agents=agents,
        )


@contextlib.contextmanager
def _node(
    site: Site, kubelets: Kubelets, machine: str, name: str, folder: Path
) -> Iterator[AgentProcess]:
    """One node, with its kubelet and its agent."""
    simulation = Simulation.create(machine, folder / "machine")
    labels = {"nvidia.com/gpu.present": "true"}
    node = kubelets.join(simulation, name, strategy=MigStrategy.MIXED, labels=labels)
    (folder / "sockets").symlink_to(node.sockets)
    with agent(site, name, simulation, folder) as process:
        yield process


def advice(cluster: Cluster) -> str:
    """What to try, as lines for a shell."""
    node = next(iter(cluster.agents))
    return f"""
The cluster runs until Ctrl-C. In another terminal:

  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={cluster.kubectl}

  kubectl get nodes -L {",".join(LABELS)}

  # pods of two GPUs: run it until none is free, and see on the agents' Leases who has which
  kubectl create -f {cluster.pod}
  kubectl get pods -o wide
  kubectl -n {names.NAMESPACE} describe leases | grep -e ^Name: -e {keys.STATE}

  # have an agent let go of NVML, and come back
  kubectl annotate node {node} {keys.RELEASE}=by-hand
  kubectl annotate node {node} {keys.RELEASE}-

  # it puts right what somebody changes
  kubectl label node {node} nvidia.com/gpu.count=64 --overwrite
"""


def watch(cluster: Cluster) -> int:
    """Wait for an agent that ends by itself, which none should; the exit code."""
    while True:
        for node, process in cluster.agents.items():
            code = process.process.poll()
            if code is not None:
                prepare.say(f"the agent of {node} ended with {code}: {process.said}")
                return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
