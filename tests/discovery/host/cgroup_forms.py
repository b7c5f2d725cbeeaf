# SPDX-License-Identifier: Apache-2.0
"""Texts of /proc/PID/cgroup as nodes have them, each with its pod, written down by hand.

A name ends in the public place where the form is to be read: a thread, a manual or a page of the
project. UIDs and ids are ours: ``POD`` runs in all, ``SLICE`` is how systemd's names have it.
"""

from __future__ import annotations

from typing import Final

POD: Final = "40934a46-d409-4f4a-bb8b-1ec0b0436320"
SLICE: Final = "40934a46_d409_4f4a_bb8b_1ec0b0436320"
STATIC: Final = "36b6d6be73b1065af369b3985edafa09"
OTHER: Final = "11111111-2222-4333-8444-555555555555"
ID: Final = "afc114c69e71f18166abd63715398d7daa763c69a6454f71157272ab0bdca783"
NEXT: Final = "0e" * 32
OWN: Final = "7d1f0a52-6f6b-4c0b-8a51-5a6c7f1e2d3c"

_GUARANTEED: Final = f"0::/kubepods.slice/kubepods-pod{SLICE}.slice"
_BURSTABLE: Final = (
    f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice"
)
_BEST: Final = f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice"

OF_PODS: Final = {
    "containerd, systemd, burstable (iovisor/kubectl-trace#174)": (
        f"{_BURSTABLE}/cri-containerd-{ID}.scope"
    ),
    "containerd, systemd, guaranteed (tkestack/vcuda-controller#19)": (
        f"{_GUARANTEED}/cri-containerd-{ID}.scope"
    ),
    "containerd, systemd, best effort (cryptnono#47)": f"{_BEST}/cri-containerd-{ID}.scope",
    "Bottlerocket (bottlerocket-os/bottlerocket#1684)": (
        f"{_BURSTABLE}/cri-containerd-{ID}.scope\n"
    ),
    "containerd, cgroupfs, burstable: k3s, Talos (google/gvisor#8269)": (
        f"0::/kubepods/burstable/pod{POD}/{ID}"
    ),
    "containerd, cgroupfs, guaranteed (google/gvisor#8269)": f"0::/kubepods/pod{POD}/{ID}",
    "gVisor's own process, in the pod's group (google/gvisor#8269)": (
        f"0::/kubepods/besteffort/pod{POD}"
    ),
    "CRI-O, systemd (iovisor/kubectl-trace#174)": f"{_BURSTABLE}/crio-{ID}.scope",
    "CRI-O, cgroupfs (cri-o/cri-o#842)": f"0::/kubepods/burstable/pod{POD}/crio-{ID}",
    "CRI-O with crun (openshift/machine-config-operator#4765)": (
        f"{_GUARANTEED}/crio-{ID}.scope/container"
    ),
    "CRI-O's conmon (opencontainers/runc#4620)": f"{_BURSTABLE}/crio-conmon-{ID}.scope",
    "CRI-O's sandbox without a scope (containerd/nri#227)": f"{_BEST}/crio-{ID}",
    "cri-dockerd, systemd (kontena/pharos-cluster#440)": f"{_BEST}/docker-{ID}.scope",
    "cri-dockerd, cgroupfs (cri-o/cri-o#842)": f"0::/kubepods/burstable/pod{POD}/{ID}",
    "a kind node, read inside (kubernetes-sigs/kind#3947)": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
        f"/kubelet-kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "a kind node, read on its host (kubernetes-sigs/kind#3947)": (
        f"0::/system.slice/docker-{NEXT}.scope/kubelet.slice/kubelet-kubepods.slice"
        f"/kubelet-kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "a k3d node, read on its host (k3d.io)": (
        f"0::/docker/{NEXT}/kubepods/burstable/pod{POD}/{ID}"
    ),
    "a kubelet with a cgroup root (kubernetes/kubernetes#49281)": (
        "0::/container.slice/container-kubepods.slice/container-kubepods-burstable.slice"
        f"/container-kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "cgroupfs below a kubelet with systemd (kubernetes/kubernetes#106514)": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice"
        f":cri-containerd:{ID}"
    ),
    "the same with a path of its own (containerd/containerd#4900)": (
        f"0::/hello/kubepods-besteffort-pod{SLICE}.slice:cri-containerd:{ID}"
    ),
    "the same, CRI-O (containerd/nri#227)": (
        f"0::/system.slice/crio.service/kubepods-burstable-pod{SLICE}.slice:crio:{ID}"
    ),
    "from another container (inspektor-gadget#3085)": (
        f"0::/../../../kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "from a container of another class (inspektor-gadget#3085)": (
        f"0::/../../../kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "from a container of the same class (cgroup_namespaces(7))": (
        f"0::/../../kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "from another container, cgroupfs (cgroup_namespaces(7))": f"0::/../../pod{POD}/{ID}",
    "from a guaranteed pod, cgroupfs (cgroup_namespaces(7))": (
        f"0::/../../burstable/pod{POD}/{ID}"
    ),
    "version 1 and 2 together (tkestack/vcuda-controller#19)": (
        f"12:hugetlb:/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope\n"
        f"1:name=systemd:/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope\n"
        "0::/system.slice/containerd.service\n"
    ),
    "version 1, the pod not in the first line (cgroups(7))": (
        f"13:misc:/\n4:cpu,cpuacct:/kubepods/burstable/pod{POD}/{ID}\n0::/\n"
    ),
    "a group that is removed (cgroups(7))": (f"{_GUARANTEED}/cri-containerd-{ID}.scope (deleted)"),
    "a pod's group that is removed (cgroups(7))": f"0::/kubepods/burstable/pod{POD} (deleted)",
    "containers below the container (cgroups(7))": (
        f"0::/kubepods/burstable/pod{POD}/{ID}/docker/{NEXT}"
    ),
    "a cluster in a pod (siderolabs/talos#6071)": (
        f"0::/kubepods/burstable/pod{POD}/{ID}/kubepods/besteffort/pod{OTHER}/{NEXT}"
    ),
    "a group that calls itself a pod in a pod (cgroups(7))": (
        f"0::/kubepods/pod{POD}/{ID}/pod{OTHER}"
    ),
    "systemd in the container (systemd.io, CONTAINER_INTERFACE)": (
        f"{_GUARANTEED}/cri-containerd-{ID}.scope/system.slice/nv-hostengine.service"
    ),
}

OF_STATIC_PODS: Final = {
    "systemd (kubernetes/kubernetes#106514)": (
        "0::/kubepods.slice/kubepods-burstable.slice"
        f"/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope"
    ),
    "cgroupfs (kubespray#8122)": f"0::/kubepods/burstable/pod{STATIC}/{ID}",
    "cgroupfs below systemd (kubernetes/kubernetes#106514)": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{STATIC}.slice"
        f":cri-containerd:{ID}"
    ),
}

OF_NO_POD: Final = {
    "nothing": "",
    "an empty line": "\n",
    "no text of this kind": f"kubepods/pod{POD}/{ID}",
    "no text at all": "\x00\ufffd::",
    "the root (cgroups(7))": "0::/\n",
    "the runtime (bottlerocket-os/bottlerocket#1684)": "0::/runtime.slice/containerd.service",
    "the kubelet (bottlerocket-os/bottlerocket#1684)": "0::/runtime.slice/kubelet.service",
    "a service of the driver (systemd.slice(5))": "0::/system.slice/nvidia-persistenced.service",
    "a login (systemd.slice(5))": "0::/user.slice/user-1000.slice/session-3.scope",
    "Docker next to Kubernetes (docs.docker.com, runmetrics)": (
        f"0::/system.slice/docker-{ID}.scope"
    ),
    "Docker, cgroupfs (docs.docker.com, runmetrics)": f"0::/docker/{ID}",
    "podman (containers/podman, libpod)": f"0::/machine.slice/libpod-{ID}.scope/container",
    "a pod of podman's (containers/podman, libpod)": (
        f"0::/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope"
    ),
    "a task of ECS (aws/amazon-ecs-agent)": (
        f"0::/ecstasks.slice/ecstasks-{STATIC}.slice/docker-{ID}.scope"
    ),
    "a step of Slurm (slurm.schedmd.com, cgroup_v2)": (
        "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0"
    ),
    "a user's unit named like a pod (systemd.slice(5))": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice"
        f"/app-pod{SLICE}.slice/run-1.scope"
    ),
    "a user's unit named like a kubelet's (systemd.slice(5))": (
        "0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice"
        f"/kubepods-pod{SLICE}.slice/run-1.scope"
    ),
    "a user's unit, from a container (cgroup_namespaces(7))": (
        f"0::/../../user@1000.service/kubepods.slice/kubepods-pod{SLICE}.slice/run-1.scope"
    ),
    "a unit of the machine named like a pod (systemd.slice(5))": (
        f"0::/app.slice/app-pod{SLICE}.slice/run-1.scope"
    ),
    "a pod's slice out of its place (systemd.slice(5))": (
        f"0::/system.slice/kubepods-pod{SLICE}.slice/run-1.scope"
    ),
    "a pod's folder out of its place (cgroups(7))": f"0::/jobs/pod{POD}/{ID}",
    "a class out of its place (cgroups(7))": f"0::/jobs/burstable/pod{POD}/{ID}",
    "a digit too many": f"0::/kubepods/pod{POD}0/{ID}",
    "a digit too few": f"0::/kubepods/pod{POD[:-1]}/{ID}",
    "large letters": f"0::/kubepods/pod{POD.upper()}/{ID}",
    "another name in front": f"0::/kubepods/xpod{POD}/{ID}",
}

OF_OWN_POD: Final = {
    "the reader itself": "0::/",
    "a group that the reader has made": "0::/jobs/1",
    "version 1 and 2 together": "4:memory:/\n1:name=systemd:/\n0::/\n",
    "the next container, containerd": f"0::/../cri-containerd-{NEXT}.scope",
    "the next container, cgroupfs": f"0::/../{NEXT}",
    "the next container, CRI-O": f"0::/../crio-{NEXT}.scope",
    "the next container's conmon": f"0::/../crio-conmon-{NEXT}.scope",
    "the next container, cri-dockerd": f"0::/../docker-{NEXT}.scope",
    "the next container, crun": f"0::/../../crio-{NEXT}.scope/container",
    "systemd in the next container": f"0::/../{NEXT}/system.slice/nv-hostengine.service",
    "the next container, removed": f"0::/../{NEXT} (deleted)",
    "the next container, version 1": f"4:memory:/../{NEXT}\n13:misc:/\n0::/\n",
}
"""As seen from a container of pod ``OWN`` with a cgroup namespace of its own. Source for all:
cgroup_namespaces(7), with the names of containers above."""

OUTSIDE_OF_OWN_POD: Final = {
    "the machine's first process": "0::/../../../../init.scope",
    "a service of the machine": "0::/../../../../system.slice/nv-hostengine.service",
    "the group above": "0::/..",
    "the root of the machine": "0::/../../../..",
    "Docker next to Kubernetes": f"0::/../../../../system.slice/docker-{NEXT}.scope",
    "Docker next to a node that is a container": f"0::/../../../../../{NEXT}",
    "a container two levels up": f"0::/../../{NEXT}",
    "a container's scope two levels up": f"0::/../../cri-containerd-{NEXT}.scope",
    "a program two levels up": "0::/../../init.scope/container",
    "a service next to the container": "0::/../nv-hostengine.service",
    "a container's name that is too short": f"0::/../{NEXT[:-1]}",
    "version 1 and 2 together": "4:memory:/../../../system.slice/x.service\n0::/\n",
    "one that has ended": "",
}
"""As above, and in no pod."""
