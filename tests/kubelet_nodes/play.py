# SPDX-License-Identifier: Apache-2.0
"""A cluster to play with: ``make cluster`` runs ``python -m tests.kubelet_nodes.play``.

    python -m tests.kubelet_nodes.play [MACHINE …]      which machines the nodes are

A real control plane with its own scheduler and a second one that asks our extender, as
docs/scheduler.md installs them; a simulated node with a fake kubelet for each machine, and a real
agent on each. It ends, and leaves nothing behind, with Ctrl-C, SIGTERM, or when it is killed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api import keys, names
from api.mig_resources import MigStrategy
from base.errors import BadInput
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE, AgentEndedError, AgentProcess, until
from tests.cluster.agents import Site, agent, is_scored
from tests.cluster.extender import PATIENT, Extender, extender
from tests.cluster.scheduling import PROFILE, Stage, configuration
from tests.controlplane import prepare
from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, KUBERNETES
from tests.controlplane.own import OwnPlane
from tests.controlplane.plane import Plane
from tests.controlplane.programs import ROOT, ProgramError
from tests.kubelet_nodes.allocator import Allocator
from tests.kubelet_nodes.kubelet import Kubelets

MACHINES: Final = ("dgx1-v100", "a100-pcie-pairs")
"""Whose GPUs are not all linked alike, so that it matters which ones a pod is given."""
BUILT: Final = f"etcd,kubernetes-{CONTROLLER_MANAGER_MINOR},allocator"
LABELS: Final = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", keys.NVLINK_CLASS, keys.HEALTH)

_POD: Final = f"""\
apiVersion: v1
kind: Pod
metadata: {{generateName: two-gpus-}}
spec:
  schedulerName: {PROFILE}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: none
    resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
_HOLDERS: Final = f"""\
#!/bin/sh
cd '{ROOT}'
kubectl get nodes,leases,pods -A -o json | '{sys.executable}' -m tests.kubelet_nodes.holders
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs."""

    plane: OwnPlane
    kubeconfig: Path
    commands: Path
    """A folder for PATH: kubectl, gpuscape, also as kubectl's plugin, and holders, which prints who
    holds which GPUs."""
    pod: Path
    """A manifest to try."""
    agents: Mapping[str, AgentProcess]
    """By node."""
    machines: Mapping[str, str]
    """By node."""
    extender: Extender


def main(machines: Sequence[str]) -> int:
    """Run it until somebody ends it; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background
        signal.signal(number, signal.default_int_handler)
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
    except ProgramError as error:
        prepare.say(str(error))
        return 1
    except KeyboardInterrupt:
        prepare.say("ended")
        return 0


@contextlib.contextmanager
def started(machines: Sequence[str]) -> Iterator[Cluster]:
    """The cluster, while the block lasts: every agent has published when it begins.

    Raises ProgramError, with the name and the last lines of what ended or did not start.
    """
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
        agents, nodes = {}, {}
        for number, machine in enumerate(machines):
            name = machine if machine not in agents else f"{machine}-{number}"
            prepare.say(f"starting node {name}")
            nodes[name] = machine
            agents[name] = running.enter_context(
                _node(site, kubelets, machine, name, folder / name)
            )
        for name in agents:
            _await_state(site, name, agents)
        prepare.say("starting the extender and the scheduler that asks it")
        stage = Stage.create(plane, folder / "admin", next(iter(agents)))
        # they run here as processes; no kubelet shall pretend to run them too
        plane.kubectl("-n", names.NAMESPACE, "scale", "deployment", "--all", "--replicas=0")
        helper = running.enter_context(extender(stage, folder, PATIENT))
        stage.start_scheduler(configuration(helper.address, stage.client, timeout="30s"))
        pod = folder / "two-gpus.yaml"
        pod.write_text(_POD, encoding="utf-8")
        yield Cluster(
            plane=plane,
            kubeconfig=plane.kubeconfig(),
            commands=_commands(folder / "bin"),
            pod=pod,
            agents=agents,
            machines=nodes,
            extender=helper,
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
    with contextlib.ExitStack() as running:
        try:
            process = running.enter_context(agent(site, name, simulation, folder))
        except AgentEndedError as error:
            raise ProgramError(f"the agent of {name} {error}") from error
        yield process


def ended(agents: Mapping[str, AgentProcess]) -> str:
    """Which agent ended, and how; empty while all run."""
    found = (f"the agent of {node} {how}" for node, it in agents.items() if (how := it.ending()))
    return next(found, "")


def _await_state(site: Site, name: str, agents: Mapping[str, AgentProcess]) -> None:
    """Wait until an agent has published. Raises ProgramError where it does not, or one ends."""
    try:
        until(lambda: is_scored(site, name) or ended(agents) != "")
    except AssertionError as error:
        lines = agents[name].last_lines
        raise ProgramError(
            f"the agent of {name} has published nothing; its last lines:\n{lines}"
        ) from error
    if ending := ended(agents):
        raise ProgramError(ending)


def _commands(folder: Path) -> Path:
    """Make the folder of commands that the advice has."""
    folder.mkdir()
    (folder / "kubectl").symlink_to(binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl")
    for name in ("gpuscape", "kubectl-gpuscape", "kubectl_complete-gpuscape"):
        (folder / name).symlink_to(GPUSCAPE.with_name(name))
    holders = folder / "holders"
    holders.write_text(_HOLDERS, encoding="utf-8")
    holders.chmod(0o755)
    return folder


def advice(cluster: Cluster) -> str:
    """What to try, as lines for a shell."""
    node, machine = next(iter(cluster.machines.items()))
    return f"""
The cluster runs until Ctrl-C. In another terminal:

  export KUBECONFIG={cluster.kubeconfig} PATH={cluster.commands}:$PATH

  kubectl get nodes -L {",".join(LABELS)}
  gpuscape topo --simulate {machine}   # how the GPUs of a node are linked

  # where would a pod of two GPUs go, and why?
  gpuscape scheduler explain -f {cluster.pod}

  # make it, and again until no two are free: who holds what, and with how many links between them
  kubectl create -f {cluster.pod}
  kubectl get pods -o wide
  holders
  kubectl gpuscape free   # what is left

  # have an agent close its NVML handles, and come back
  kubectl annotate node {node} {keys.RELEASE}=by-hand
  kubectl annotate node {node} {keys.RELEASE}-

  # it puts right what somebody changes
  kubectl label node {node} nvidia.com/gpu.count=64 --overwrite
"""


def watch(cluster: Cluster) -> int:
    """Wait for a program that ends by itself, which none should; the exit code."""
    while True:
        if ending := ended(cluster.agents):
            prepare.say(ending)
            return 1
        if ending := cluster.extender.ending():
            prepare.say(f"the extender {ending}")
            return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
