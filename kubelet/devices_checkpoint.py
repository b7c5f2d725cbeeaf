# SPDX-License-Identifier: Apache-2.0
"""Devices that pods hold and that plugins offer, from the kubelet's own checkpoint.

The kubelet hands an init container, or one that crashes, the same devices again, and reports them
to nobody meanwhile: the checkpoint alone has them. A pod that has ended stays in it until the
kubelet hands out something else. That it has ended its cgroup says (:mod:`kubelet.pod_cgroups`).
Whether it is still there its folders say: that of its volumes is made after the pod's devices are
written down, then that of its logs; when it is deleted they go in the same order, the second up to
a minute after the first.
Source: Kubernetes 1.32.2 and 1.37.1, pkg/kubelet: cm/devicemanager/checkpoint and manager.go;
kubelet.go, SyncPod; kubelet_volumes.go, cleanupOrphanedPodDirs; kuberuntime/kuberuntime_sandbox.go
and kuberuntime_gc.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from api.mig_resources import is_gpu_resource
from base.errors import BadInput
from base.files import read_bytes
from kubelet.claims_checkpoint import claimed_devices
from kubelet.pod_cgroups import ended_pods

FOLDER: Final = Path("var/lib/kubelet")
CHECKPOINT: Final = FOLDER / "device-plugins/kubelet_internal_checkpoint"
PODS: Final = FOLDER / "pods"
"""A folder for each pod of the node, by UID, from its admission until it is deleted."""
LOGS: Final = Path("var/log/pods")
"""A folder for each pod: namespace, name and UID with ``_`` between."""

MOST_BYTES: Final = 16 << 20
"""Largest checkpoint that is read; a container of 16 GPUs and their device nodes has 10 KiB."""
SETTLED_SECONDS: Final = 60.0
"""Age after which an admitted pod has its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDevices:
    """The devices of all plugins, as these have named them."""

    held: Mapping[str, frozenset[str]]
    """Device to the pods that have it, ``namespace/name``; by UID where the name is not known.
    A pod that has ended counts until it is deleted, where the host's cgroups are not seen."""
    gpus: frozenset[str] = frozenset()
    """Held devices that are GPUs or parts of a GPU, as the name of their resource shows."""
    claimed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Device of NVIDIA's driver for dynamic resource allocation to the pods that have it, as in
    ``held``; the name is empty where it is not known. Where no pod uses a device, the claim stands
    in place of a pod."""
    offered: frozenset[str]
    """Devices that the plugins have registered, healthy ones alone."""


NO_KUBELET: Final = KubeletDevices(held={}, offered=frozenset())


class _Entry(msgspec.Struct):
    """Devices of one resource that a container has; ids by NUMA node."""

    PodUID: str
    ResourceName: str = ""
    DeviceIDs: dict[str, list[str] | None] | None = None


class _Data(msgspec.Struct):
    PodDeviceEntries: list[_Entry] | None = None
    RegisteredDevices: dict[str, list[str] | None] | None = None


class _Checkpoint(msgspec.Struct):
    Data: _Data


def read_kubelet_devices(root: Path, now: float) -> KubeletDevices:
    """The devices of the kubelet on a host whose root is at ``root``; none where there is none.

    ``now``: seconds since the epoch. Raises BadInput where a checkpoint cannot be read: it is
    not known then who holds what.
    """
    logs = dict(_logs(root / LOGS))  # before any look for a pod's other folder
    names = {uid: name for uid, (name, _) in logs.items()}
    claimed: dict[str, set[str]] = {}
    for device, uid, claim in claimed_devices(root):
        claimed.setdefault(device, set()).add(names.get(uid, uid) or f"{claim} (claim)")
    return replace(
        _of_plugins(root, now, logs),
        claimed={device: frozenset(pods) for device, pods in claimed.items()},
    )


def held_by_resource(file: Path) -> Mapping[str, Mapping[str, int | None]]:
    """Resource to its devices that the kubelet counts as held, those of ended pods included.

    Each device with its NUMA node, as its plugin listed it when a pod got it; None where that
    listed none. ``file``: the checkpoint. Empty where there is none yet. Raises BadInput where it
    cannot be read.
    """
    if not file.exists():
        return {}
    held: dict[str, dict[str, int | None]] = {}
    for entry in _decoded(file).PodDeviceEntries or ():
        for numa, ids in (entry.DeviceIDs or {}).items():
            node = int(numa) if numa.isascii() and numa.isdecimal() else None  # -1: none
            held.setdefault(entry.ResourceName, {}).update(dict.fromkeys(ids or (), node))
    return held


def _decoded(file: Path) -> _Data:
    content = read_bytes(file, most_bytes=MOST_BYTES)
    try:
        return msgspec.json.decode(content, type=_Checkpoint).Data
    except msgspec.MsgspecError as error:
        raise BadInput(f"cannot read {file}: no checkpoint of a kubelet: {error}") from error


def pod_names(root: Path) -> Mapping[str, str]:
    """UID to ``namespace/name`` of the pods whose logs the host at ``root`` has."""
    return {uid: name for uid, (name, _) in _logs(root / LOGS)}


def _of_plugins(root: Path, now: float, logs: Mapping[str, tuple[str, Path]]) -> KubeletDevices:
    file = root / CHECKPOINT
    try:
        written = file.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        folder = root / FOLDER
        # from inside a container a link leads out of the host's tree
        if folder.is_symlink() and not folder.is_dir():
            raise BadInput(f"cannot read {file}: {folder} is a link that leads nowhere") from None
        return NO_KUBELET
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from error
    data = _decoded(file)
    fresh = now - written < SETTLED_SECONDS
    entries = data.PodDeviceEntries or ()
    folders = {it.PodUID: logs[it.PodUID][1] for it in entries if it.PodUID in logs}
    ended = ended_pods(root, folders, now)
    held: dict[str, set[str]] = {}
    gpus: set[str] = set()
    for entry in entries:
        uid = entry.PodUID
        may_come = fresh and not _has_run(uid, logs)
        if may_come or (uid not in ended and _is_there(root / PODS, uid)):
            for ids in (entry.DeviceIDs or {}).values():
                for device in ids or ():
                    held.setdefault(device, set()).add(logs[uid][0] if uid in logs else uid)
                    if is_gpu_resource(entry.ResourceName):
                        gpus.add(device)
    offered = (device for ids in (data.RegisteredDevices or {}).values() for device in ids or ())
    return KubeletDevices(
        held={device: frozenset(pods) for device, pods in held.items()},
        gpus=frozenset(gpus),
        offered=frozenset(offered),
    )


def _has_run(uid: str, logs: Collection[str]) -> bool:
    """Whether the pod had all its folders; of a static pod it is not known.

    The UID of a static pod is a hash of its manifest, without dashes: it comes again.
    """
    return uid in logs and "-" in uid


def _is_there(pods: Path, uid: str) -> bool:
    """Whether the pod may be there: also where its folder is elsewhere, or cannot be seen."""
    try:
        (pods / uid).lstat()
    except FileNotFoundError:
        return not pods.is_dir()
    except OSError:
        pass
    return True


def _logs(folder: Path) -> Iterator[tuple[str, tuple[str, Path]]]:
    """UID to ``namespace/name`` and the folder of the pod's logs."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        namespace, _, rest = path.name.partition("_")
        name, _, uid = rest.partition("_")
        if uid:
            yield uid, (f"{namespace}/{name}", path)
