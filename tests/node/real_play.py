# SPDX-License-Identifier: Apache-2.0
"""A cluster with real nodes to play with: ``make cluster NODES=real`` runs this module.

    python -m tests.node.real_play [MACHINE …]      which machines the nodes are

Nodes with kubelet and containerd on simulated machines, the shipped agents and extender and
NVIDIA's device plugin in containers, and next to the cluster's own scheduler a second one that
asks the extender. It ends, and leaves nothing behind, with Ctrl-C, SIGTERM, or when it is killed.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api import keys
from base.errors import BadInput
from simulator.description.machine_catalog import load_machine
from tests.agent.agent_process import GPUSCAPE
from tests.cluster.scheduling import ACCOUNT, PROFILE
from tests.controlplane import prepare
from tests.controlplane.builds import NotPreparedError, binaries
from tests.controlplane.families import (
    CONTROLLER_MANAGER_MINOR,
    ETCD,
    KUBERNETES,
    NODE_PROGRAMS,
    NVIDIA,
)
from tests.controlplane.programs import ROOT, ProgramError, Programs
from tests.deploy.daemonset import container, daemonset
from tests.kubelet_nodes.play import LABELS, MACHINES
from tests.node import needs
from tests.node.gpu_cluster import gpu_cluster
from tests.node.machine import FIRST_PROCESS
from tests.node.node_gpus import DRIVER
from tests.node.nvidia_plugin import GPU, NvidiaPlugin
from tests.node.ranked_scheduling import RankedScheduling
from tests.node.real_cluster import RealCluster
from tests.node.real_node import NAMESPACES

_MINOR: Final = CONTROLLER_MANAGER_MINOR
BUILT: Final = (ETCD, KUBERNETES[_MINOR], NVIDIA, *NODE_PROGRAMS[_MINOR])
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", ACCOUNT)
NODE: Final = ("containerd", "kubelet", DRIVER)
"""Programs that run as long as the cluster does."""

_PYTHON: Final = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]  # lacking there
"""In the image too, which is made of this environment."""
# Python as a container's first process does not end by SIGTERM: it is killed at once
_POD: Final = f"""\
apiVersion: v1
kind: Pod
metadata: {{generateName: two-gpus-, labels: {{app: two-gpus}}}}
spec:
  schedulerName: {PROFILE}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: {container(daemonset())["image"]}
    command: [{_PYTHON}, -uc]
    args: ["import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES']); time.sleep(1e6)"]
    resources: {{limits: {{{GPU}: 2}}}}
"""

_HOLDERS: Final = f"""\
#!/bin/sh
cd '{ROOT}'
kubectl get nodes,leases,pods -A -o json | '{sys.executable}' -m tests.kubelet_nodes.holders
"""
_ON: Final = f"""\
#!/bin/sh
case "$#" in 0|1) echo >&2 "on NODE COMMAND…"; exit 2;; esac
first=$(cat FOLDER/"$1"/{FIRST_PROCESS}) || exit
shift
exec nsenter --target="$first" {" ".join(NAMESPACES)} -- env PATH=CONTAINERD:"$PATH" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Playground:
    """What runs."""

    cluster: RealCluster
    scheduling: RankedScheduling
    machines: Mapping[str, str]
    """By node."""
    commands: Path
    """A folder for PATH: kubectl, gpuscape, also as kubectl's plugin, ``on``, which runs a command
    on a node, and ``holders``, which prints who holds which GPUs."""
    pod: Path
    """A manifest to try."""


def main(machines: Sequence[str]) -> int:
    """Run it until somebody ends it; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background
        signal.signal(number, signal.default_int_handler)
    machines = machines or MACHINES
    try:
        for machine in machines:
            load_machine(machine)  # before anything is built or started
        needs.demand()
        if code := prepare.main(["--only", ",".join(family.name for family in BUILT)]):
            return code
        with started(machines) as playground:
            prepare.say(advice(playground))
            return watch(playground)
    except BadInput as error:
        prepare.say(str(error))
        return 2
    except (NotPreparedError, ProgramError) as error:
        prepare.say(str(error))
        return 1
    except KeyboardInterrupt:
        prepare.say("ended")
        return 0


@contextlib.contextmanager
def started(machines: Sequence[str]) -> Iterator[Playground]:
    """The cluster, while the block lasts: every agent has published when it begins."""
    folder = Path(tempfile.mkdtemp(prefix="gpuscape-real-"))
    with contextlib.ExitStack() as running:
        # by a process of its own, so that it is done even when we are killed
        running.enter_context(Programs(folder / "logs")).remove(folder)
        cluster = running.enter_context(gpu_cluster(folder, *machines, note=prepare.say)).cluster
        prepare.say("starting NVIDIA's device plugin on each node")
        for node in cluster.nodes.values():
            NvidiaPlugin.start(cluster.plane, node)
        prepare.say("starting the extender and the scheduler that asks it")
        scheduling = RankedScheduling.install(cluster)
        pod = folder / "two-gpus.yaml"
        pod.write_text(_POD, encoding="utf-8")
        yield Playground(
            cluster=cluster,
            scheduling=scheduling,
            machines=dict(zip(cluster.nodes, machines, strict=True)),
            commands=_commands(folder / "bin", cluster),
            pod=pod,
        )


def _commands(folder: Path, cluster: RealCluster) -> Path:
    """Make the folder of commands that the advice has."""
    folder.mkdir()
    (folder / "kubectl").symlink_to(binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl")
    for name in ("gpuscape", "kubectl-gpuscape", "kubectl_complete-gpuscape"):
        (folder / name).symlink_to(GPUSCAPE.with_name(name))
    nodes = folder / "nodes"
    nodes.mkdir()
    for node in cluster.nodes.values():
        (nodes / node.name).symlink_to(node.folder)
        containerd = node.program("ctr").parent
    on = _ON.replace("FOLDER", str(nodes)).replace("CONTAINERD", str(containerd))
    for name, script in {"holders": _HOLDERS, "on": on}.items():
        (folder / name).write_text(script, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def advice(playground: Playground) -> str:
    """What to try, as lines for a shell."""
    kubeconfig = playground.cluster.plane.kubeconfig()
    node = next(iter(playground.cluster.nodes.values()))
    machine = playground.machines[node.name]
    return f"""
The cluster runs until Ctrl-C. In another terminal, as root:

  export KUBECONFIG={kubeconfig} PATH={playground.commands}:$PATH

  kubectl get nodes -L {",".join(LABELS)}
  kubectl get pods -A -o wide   # agents, extenders and NVIDIA's plugin, in containers
  gpuscape topo --simulate {machine}   # how the GPUs of {node.name} are linked

  # where would a pod of two GPUs go, and why?
  gpuscape scheduler explain -f {playground.pod}

  # make it, and again until no two are free: who holds what, and with how many links between them
  kubectl create -f {playground.pod}
  kubectl get pods -o wide
  holders
  kubectl gpuscape free   # what is left
  kubectl logs -l app=two-gpus --prefix   # what the plugin told each container

  # the containers of a node; its logs: {node.folder}/logs, {node.folder}/var-log/pods
  on {node.name} ctr --namespace=k8s.io containers ls

  # have an agent close its NVML handles, and come back
  kubectl annotate node {node.name} {keys.RELEASE}=by-hand
  kubectl annotate node {node.name} {keys.RELEASE}-

  # it puts right what somebody changes
  kubectl label node {node.name} nvidia.com/gpu.count=64 --overwrite
"""


def watch(playground: Playground) -> int:
    """Wait for a program that ends by itself, which none should; the exit code."""
    cluster = playground.cluster
    while True:
        for name in PROGRAMS:
            if (code := cluster.plane.programs.code(name)) is not None:
                prepare.say(f"{name} ended with {code}: {cluster.plane.programs.log(name)}")
                return 1
        for node in cluster.nodes.values():
            for name in NODE:
                if (code := node.programs.code(name)) is not None:
                    prepare.say(
                        f"{name} of {node.name} ended with {code}: {node.programs.log(name)}"
                    )
                    return 1
        playground.scheduling.follow()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
