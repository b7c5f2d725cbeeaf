# SPDX-License-Identifier: Apache-2.0
"""The files that containerd and the kubelet of a node read. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PAUSE: Final = "localhost/pause:1"
"""The image of every pod's sandbox."""
SOCKET: Final = "/run/containerd/containerd.sock"


def containerd_config(*, runtimes: Mapping[str, Path], plugins: Path, networks: Path) -> str:
    """TOML, version 3. ``plugins``: the folder of CNI's programs; ``networks``: of its files.

    ``runtimes``: a RuntimeClass's handler to the program that is called as runc is. Without
    restrict_oom_score_adj no container starts under a root that lacks CAP_SYS_RESOURCE.
    """
    cri = "plugins.'io.containerd.cri.v1"
    handlers = "".join(
        f"""
[{cri}.runtime'.containerd.runtimes.{name}]
runtime_type = 'io.containerd.runc.v2'
[{cri}.runtime'.containerd.runtimes.{name}.options]
BinaryName = '{program}'
SystemdCgroup = false
"""
        for name, program in runtimes.items()
    )
    return f"""\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
[grpc]
address = '{SOCKET}'
[plugins.'io.containerd.internal.v1.opt']
path = '/var/lib/containerd/opt'
[plugins.'io.containerd.nri.v1.nri']
disable = true
[{cri}.images'.pinned_images]
sandbox = '{PAUSE}'
[{cri}.runtime']
restrict_oom_score_adj = true
[{cri}.runtime'.cni]
bin_dirs = ['{plugins}']
conf_dir = '{networks}'
{handlers}"""


def pod_network(addresses: str) -> Mapping[str, Any]:
    """CNI's list of plugins for pods with these addresses: a bridge on each node, no NAT."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": addresses}]]},
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def gpu_runtime(*, gpus: Path, runc: Path) -> str:
    """A program that is called as runc is, and gives containers the GPUs of that folder."""
    script = Path(__file__).with_name("injecting_runtime.py")
    return f'#!/bin/sh\nexec {sys.executable} -IS {script} {gpus} {runc} "$@"\n'


def kubelet_config(
    *, ca_file: Path, cgroup_v1: bool, settings: Mapping[str, Any]
) -> Mapping[str, Any]:
    """KubeletConfiguration: rights as in a cluster; nothing is evicted or collected here.

    ``cgroup_v1``: whether the kubelet may run on it. ``settings`` stand beside it.

    Source: kubelet.config.k8s.io/v1beta1. ``failCgroupV1`` is true by default from 1.35 on.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca_file)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": not cgroup_v1,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        **settings,
    }
