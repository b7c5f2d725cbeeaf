# SPDX-License-Identifier: Apache-2.0
"""Which pods have ended by their cgroups: rather a pod too few than one that only crashes."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from kubelet.devices_checkpoint import LOGS, PODS, SETTLED_SECONDS, read_kubelet_devices
from kubelet.pod_cgroups import CGROUPS, ended_pods
from tests.kubelet_nodes.checkpoint_file import write_checkpoint

POD = "c6f07209-b54c-4738-b244-15000e690334"
OTHER = "df622514-5bea-4496-af90-7d6f98581e67"
LAYOUTS = {
    "version 2, systemd": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{_}.slice",
    "version 2, guaranteed": "kubepods.slice/kubepods-pod{_}.slice",
    "version 2, cgroupfs": "kubepods/besteffort/pod{}",
    "version 1": "memory/kubepods/burstable/pod{}",
    "kind": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{_}.slice",
}
"""Places of a pod's cgroup."""


def cgroup(root: Path, uid: str, layout: str = LAYOUTS["version 2, cgroupfs"]) -> Path:
    """Make the cgroup of a pod."""
    folder = root / CGROUPS / layout.replace("{_}", uid.replace("-", "_")).replace("{}", uid)
    (folder / "cri-containerd-0f").mkdir(parents=True)
    return folder


def log(root: Path, uid: str, name: str = "a") -> Path:
    """Make the log of a pod's container."""
    file = root / LOGS / f"default_{name}_{uid}" / "main" / "0.log"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def ended(root: Path, *uids: str) -> frozenset[str]:
    logs = {uid: root / LOGS / f"default_a_{uid}" for uid in uids}
    return ended_pods(root, logs, time.time())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_pod_that_has_run_and_has_no_cgroup_any_more_has_ended(
    tmp_path: Path, layout: str
) -> None:
    log(tmp_path, POD)
    cgroup(tmp_path, OTHER, layout)
    assert ended(tmp_path, POD) == {POD}

    cgroup(tmp_path, POD, layout)

    assert ended(tmp_path, POD) == frozenset()


def test_a_pod_that_has_not_run_since_the_boot_may_have_no_cgroup_yet(tmp_path: Path) -> None:
    """Its containers of before the boot have logs, too."""
    cgroup(tmp_path, OTHER)
    assert ended(tmp_path, POD) == frozenset()

    file = log(tmp_path, POD)
    os.utime(file, (1.0, 1.0))

    assert ended(tmp_path, POD) == frozenset()


@pytest.mark.parametrize("clock", [0.0, 86400.0])
def test_a_log_of_a_time_to_come_is_of_before_the_boot(tmp_path: Path, clock: float) -> None:
    """The clock is not set yet, or was a day ahead before the boot."""
    ahead = log(tmp_path, POD)
    cgroup(tmp_path, OTHER)
    now = time.time() if clock else 100.0
    os.utime(ahead, (now + 86400.0, now + 86400.0))

    assert ended_pods(tmp_path, {POD: ahead.parents[1]}, now) == frozenset()


@pytest.mark.parametrize("has_folder", [True, False])
def test_where_no_cgroups_of_pods_are_seen_no_pod_has_ended(
    tmp_path: Path, has_folder: bool
) -> None:
    """As below another root, or with a kubelet that makes none."""
    log(tmp_path, POD)
    if has_folder:
        (tmp_path / CGROUPS / "system.slice").mkdir(parents=True)

    assert ended(tmp_path, POD) == frozenset()


def test_a_static_pod_never_counts_as_ended(tmp_path: Path) -> None:
    """Its UID has no dashes and comes again, and so does its cgroup."""
    static = "0123456789abcdef0123456789abcdef"
    log(tmp_path, static)
    cgroup(tmp_path, OTHER)

    assert ended(tmp_path, static) == frozenset()


def test_the_devices_of_a_pod_that_has_ended_are_free_before_it_is_deleted(
    tmp_path: Path,
) -> None:
    """The kubelet has them in its checkpoint until it hands out something else."""
    file = write_checkpoint(tmp_path, {"a": ["GPU-1"], "b": ["GPU-2"]})
    shutil.rmtree(tmp_path / LOGS)
    for name, uid in (("a", POD), ("b", OTHER)):
        file.write_text(file.read_text().replace(f"uid-of-{name}", uid))
        (tmp_path / PODS / f"uid-of-{name}").rename(tmp_path / PODS / uid)
        log(tmp_path, uid, name)
    folder = cgroup(tmp_path, POD)
    cgroup(tmp_path, OTHER)
    now = time.time() + 2 * SETTLED_SECONDS
    assert read_kubelet_devices(tmp_path, now).held == {
        "GPU-1": {"default/a"},
        "GPU-2": {"default/b"},
    }

    shutil.rmtree(folder)

    assert read_kubelet_devices(tmp_path, now).held == {"GPU-2": {"default/b"}}
