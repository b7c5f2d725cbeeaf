# SPDX-License-Identifier: Apache-2.0
"""What the control plane is made of: Go modules, each set pinned by a go.mod of its own.

Sets are apart so that their pins do not fight; a binary per Kubernetes minor saves links. One
set is of npm packages, which what a dashboard shows is judged with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.debian import Library, Package
from tests.controlplane.toolchain import GO, NODE, Tool

MODULES = Path(__file__).parent / "go"

MINORS = ("1.32", "1.37")
"""Kubernetes versions that tests run on: our floor, and the newest."""

CONTROLLER_MANAGER_MINOR = "1.37"
"""The one whose controller manager and kubectl are built; they serve the older one as well."""

PACKAGES = "debian"
"""In the folder of a family's binaries: the root of what its packages have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Programs that are built from one go.mod, or npm packages that are installed by one lock."""

    name: str
    folder: Path
    """Holds go.mod, go.sum and what is compiled here; or package.json and package-lock.json."""
    tool: Tool = GO
    """Go, or Node for npm packages."""
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Package to the names of its binary: one binary, told apart by the name it is called by."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Package variables that the linker sets."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Module to files of its own that are put beside the binaries, by their last name."""
    cgo: bool = False
    tags: tuple[str, ...] = ()
    """Build tags."""
    library: Library | None = None
    """A C library that is linked with it, whose headers a machine may lack."""
    packages: tuple[Package, ...] = ()
    """Debian's, which are unpacked beside the binaries into :data:`PACKAGES`."""
    c_linker: str = ""
    """Flags of the C linker."""
    minutes: int = 1
    """How long a first build takes on two cores, for what is said while it runs."""


def kubernetes(
    minor: str, patch: int, *programs: str, minutes: int, name: str = "kubernetes"
) -> Family:
    """One minor's programs, which answer with its version."""
    version = "k8s.io/component-base/version"
    major, small = minor.split(".")
    return Family(
        name=f"{name}-{minor}",
        folder=MODULES / f"{name}-{minor}",
        programs={".": programs},
        variables={
            f"{version}.gitVersion": f"v{minor}.{patch}",
            f"{version}.gitMajor": major,
            f"{version}.gitMinor": small,
        },
        minutes=minutes,
    )


ETCD = Family(name="etcd", folder=MODULES / "etcd", programs={".": ("etcd",)})
KUBERNETES = {
    "1.37": kubernetes(
        "1.37",
        1,
        "kube-apiserver",
        "kube-scheduler",
        "kube-controller-manager",
        "kubectl",
        minutes=6,
    ),
    "1.32": kubernetes("1.32", 2, "kube-apiserver", "kube-scheduler", minutes=3),
}
KUBELETS = {
    "1.37": kubernetes("1.37", 1, "kubelet", minutes=1, name="kubelet"),
    "1.32": kubernetes("1.32", 2, "kubelet", minutes=1, name="kubelet"),
}
"""Apart from the others, which most tests need without it; Go compiles what they share once."""

_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
CONTAINERD = Family(
    name="containerd",
    folder=MODULES / "containerd",
    programs={
        f"{_CONTAINERD}/{name}": (name,)
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    variables={"github.com/containerd/containerd/v2/version.Version": "v2.4.2"},
    # snapshotters that nothing here uses
    tags=("no_btrfs", "no_devmapper", "no_zfs"),
    minutes=2,
)
RUNC = Family(
    name="runc",
    folder=MODULES / "runc",
    programs={"github.com/opencontainers/runc": ("runc",)},
    variables={"main.version": "1.5.2"},
    cgo=True,
    # without it a pod that asks for a seccomp profile is refused
    tags=("seccomp",),
    library=Library(
        name="libseccomp",
        archive="libseccomp.a",
        package="libseccomp-dev",
        version="2.5.4-1+deb12u1",
        hashes={"amd64": "5fb305f3aeb293e2b78a4cfcb58c0f42179703c371a408d002c8454661e6b7b2"},
    ),
)

_PLUGINS = "github.com/containernetworking/plugins/plugins"
CNI = Family(
    name="cni",
    folder=MODULES / "cni",
    programs={
        f"{_PLUGINS}/{place}": (place.rpartition("/")[2],)
        for place in ("main/bridge", "main/loopback", "ipam/host-local")
    },
    minutes=0,
)
PAUSE = Family(name="pause", folder=MODULES / "pause", programs={".": ("pause",)}, minutes=0)

NODE_PROGRAMS = {
    minor: (kubelet, CONTAINERD, RUNC, CNI, PAUSE) for minor, kubelet in KUBELETS.items()
}
"""What a node of a Kubernetes minor runs its pods with."""

_STAGES = "kustomize/stage"
KWOK = Family(
    name="kwok",
    folder=MODULES / "kwok",
    programs={"sigs.k8s.io/kwok/cmd/kwok": ("kwok",)},
    files={
        "sigs.k8s.io/kwok": (
            f"{_STAGES}/node/fast/node-initialize.yaml",
            f"{_STAGES}/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            f"{_STAGES}/pod/fast/pod-ready.yaml",
            f"{_STAGES}/pod/fast/pod-complete.yaml",
            f"{_STAGES}/pod/fast/pod-delete.yaml",
        )
    },
    minutes=1,
)

_NFD = "sigs.k8s.io/node-feature-discovery"
NFD = Family(
    name="nfd",
    folder=MODULES / "nfd",
    programs={f"{_NFD}/cmd/{name}": (name,) for name in ("nfd-master", "nfd-worker")},
    variables={
        f"{_NFD}/pkg/version.version": "v0.19.0",
        # relative: it is the features.d of the folder that the worker is started in
        f"{_NFD}/source/local.featureFilesDir": "features.d",
    },
    files={_NFD: ("deployment/base/nfd-crds/nfd-api-crds.yaml",)},
    minutes=2,
)

_PROMETHEUS = "github.com/prometheus/prometheus"
_DEFINITIONS = "example/prometheus-operator-crd/monitoring.coreos.com"
PROMETHEUS = Family(
    name="prometheus",
    folder=MODULES / "prometheus",
    programs={f"{_PROMETHEUS}/cmd/{name}": (name,) for name in ("prometheus", "promtool")},
    variables={"github.com/prometheus/common/version.Version": "3.15.0"},
    files={
        "github.com/prometheus-operator/prometheus-operator": (
            f"{_DEFINITIONS}_podmonitors.yaml",
            f"{_DEFINITIONS}_prometheusrules.yaml",
            f"{_DEFINITIONS}_servicemonitors.yaml",
        )
    },
    # without the service discoveries of clouds, a quarter of its packages
    tags=("remove_all_sd", "enable_kubernetes_sd"),
    minutes=3,
)

ALLOCATOR = Family(
    name="allocator",
    folder=Path(__file__).parents[1] / "kubelet_nodes" / "go",
    programs={".": ("allocator",)},
    cgo=True,  # the library binds NVML in C, and does not compile without
)

NVIDIA = Family(
    name="nvidia",
    folder=Path(__file__).parents[1] / "foreign" / "go",
    programs={
        "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery": ("gpu-feature-discovery",),
        "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin": ("nvidia-device-plugin",),
        "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted": ("nvidia-mig-parted",),
        ".": ("gpu-links",),
    },
    files={
        "github.com/NVIDIA/mig-parted": ("deployments/systemd/config-default.yaml",),
        "github.com/NVIDIA/go-nvml": ("pkg/nvml/mock/dgxa100/mig-profile.go",),
    },
    cgo=True,  # NVML is bound in C
    c_linker="-Wl,-z,lazy",  # NVML's functions are there once its library is loaded
    minutes=2,
)

HELM = Family(
    name="helm",
    folder=MODULES / "helm",
    programs={"helm.sh/helm/v4/cmd/helm": ("helm",)},
    variables={"helm.sh/helm/v4/internal/version.version": "v4.3.1"},
    minutes=2,
)

_MIG_PARTED = "github.com/NVIDIA/mig-parted"
MIG_MANAGER = Family(
    name="mig-manager",
    folder=Path(__file__).parents[1] / "foreign" / "mig_manager_go",
    programs={f"{_MIG_PARTED}/cmd/nvidia-mig-manager": ("nvidia-mig-manager",)},
    # what the manager runs for each change; it calls kubectl and nvidia-mig-parted
    files={_MIG_PARTED: ("deployments/container/reconfigure-mig.sh",)},
    minutes=2,
)

_KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2"
_IPTABLES, _IPSET = "1.8.9-2", "7.17-1"
KUBE_ROUTER = Family(
    name="kube-router",
    folder=MODULES / "kube-router",
    programs={f"{_KUBE_ROUTER}/cmd/kube-router": ("kube-router",)},
    variables={f"{_KUBE_ROUTER}/pkg/version.Version": "v2.1.0"},
    # what it writes the kernel's rules with
    packages=tuple(
        Package(package=name, version=version, hashes={"amd64": sha256})
        for name, version, sha256 in (
            (
                "iptables",
                _IPTABLES,
                "2928d3ca6ca8a3dc3f423f6752822b1f3614a5ba609ff7806bcba4449ffe90e1",
            ),
            (
                "libip4tc2",
                _IPTABLES,
                "f2c48b367f9ec13f9aa577e7ccf81b371ce5d5fe22dddf9d7aa99f1e0bb7cfc4",
            ),
            (
                "libip6tc2",
                _IPTABLES,
                "be88db3dfa2fe3345ea343207f7c75345602686121e579023d021c348b9b4f4d",
            ),
            (
                "libxtables12",
                _IPTABLES,
                "cb841d66950a43af4a398625313d2f3da9065299c9738538de6c2c3495857040",
            ),
            (
                "ipset",
                _IPSET,
                "4bcc86f6658ca92fe2e21a6a7d4fd162d3b94ec3cdc709a9cf05f0a8ad9c7725",
            ),
            (
                "libipset13",
                _IPSET,
                "67fe7a8366878b0431b6e247c04b131b43df90f8090000a2681e63d4c22d02ca",
            ),
            (
                "libmnl0",
                "1.0.4-3",
                "4581f42e3373cb72f9ea4e88163b17873afca614a6c6f54637e95aa75983ea7c",
            ),
        )
    ),
    minutes=2,
)

_KUEUE = "sigs.k8s.io/kueue"
KUEUE = Family(
    name="kueue",
    folder=MODULES / "kueue",
    programs={f"{_KUEUE}/cmd/kueue": ("kueue",)},
    files={
        _KUEUE: (
            "config/components/webhook/manifests.yaml",
            *(
                f"config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml"
                for kind in (
                    "admissionchecks",
                    "clusterqueues",
                    "cohorts",
                    "localqueues",
                    "multikueueclusters",
                    "multikueueconfigs",
                    "provisioningrequestconfigs",
                    "resourceflavors",
                    "topologies",
                    "workloadpriorityclasses",
                    "workloads",
                )
            ),
        )
    },
    minutes=4,
)
_JOBSET = "sigs.k8s.io/jobset"
JOBSET = Family(
    name="jobset",
    folder=MODULES / "jobset",
    programs={_JOBSET: ("jobset",)},
    files={
        _JOBSET: (
            "config/components/webhook/manifests.yaml",
            "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        )
    },
    minutes=3,
)
_KUBE_SCORE = "github.com/zegl/kube-score/cmd/kube-score"
KUBE_SCORE = Family(
    name="kube-score", folder=MODULES / "kube-score", programs={_KUBE_SCORE: ("kube-score",)}
)
ARGO_CD = Family(
    name="argo-cd", folder=MODULES / "argo-cd", programs={".": ("argo-cd-sync",)}, minutes=4
)

IDLE_EXTENDER = Family(
    name="idle-extender",
    folder=Path(__file__).parents[1] / "bench" / "go",
    programs={".": ("idle-extender",)},
)

CSV_READER = Family(
    name="csv-reader",
    folder=Path(__file__).parents[1] / "foreign" / "csv_go",
    programs={".": ("csv-reader",)},
)

GRAFANA = Family(name="grafana", folder=Path(__file__).parents[1] / "monitoring" / "npm", tool=NODE)

ALL = (
    *(ETCD, PROMETHEUS, GRAFANA, ALLOCATOR, NVIDIA, IDLE_EXTENDER, CSV_READER),
    *(KUBERNETES["1.37"], *NODE_PROGRAMS["1.37"], KUBERNETES["1.32"], KWOK, NFD, HELM),
)
"""In the order of building: what most tests wait for comes first."""

FOR_LONG = (KUBELETS["1.32"], MIG_MANAGER, JOBSET, KUEUE, KUBE_ROUTER, KUBE_SCORE, ARGO_CD)
"""What only tests marked ``long`` need: built when it is named."""
