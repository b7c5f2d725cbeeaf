# SPDX-License-Identifier: Apache-2.0
"""Who has which device by a kubelet's checkpoint: rather a pod too many than one too few."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from base.errors import BadInput
from kubelet.devices_checkpoint import (
    FOLDER,
    LOGS,
    NO_KUBELET,
    PODS,
    SETTLED_SECONDS,
    read_kubelet_devices,
)
from tests.kubelet_nodes.checkpoint_file import write_checkpoint

ONE, TWO = "MIG-1", "MIG-2"


def long_after(file: Path) -> float:
    """When every pod of it has its folder."""
    return file.stat().st_mtime + 2 * SETTLED_SECONDS


def test_each_device_has_the_names_of_the_pods_that_hold_it(tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path, {"a": [ONE, TWO], "b": [TWO]}, offered={"r": [ONE], "s": []})

    found = read_kubelet_devices(tmp_path, long_after(file))

    assert found.held == {ONE: {"default/a"}, TWO: {"default/a", "default/b"}}
    assert found.offered == {ONE}


def test_a_host_without_a_kubelet_has_none(tmp_path: Path) -> None:
    assert read_kubelet_devices(tmp_path, 0.0) == NO_KUBELET


def test_nobody_and_nothing_are_no_error(tmp_path: Path) -> None:
    """The kubelet writes null for an empty list."""
    file = write_checkpoint(tmp_path, {})
    file.write_text('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {"r": null}}}')

    assert read_kubelet_devices(tmp_path, long_after(file)) == NO_KUBELET


def test_a_deleted_pod_holds_nothing_unless_it_may_have_come_just_now(tmp_path: Path) -> None:
    """A pod is in the checkpoint before its folder is made."""
    file = write_checkpoint(tmp_path, {"a": [ONE]}, gone=["a"])

    assert read_kubelet_devices(tmp_path, long_after(file)).held == {}
    assert read_kubelet_devices(tmp_path, file.stat().st_mtime + 1).held == {ONE: {"uid-of-a"}}


def test_a_pod_that_has_run_holds_nothing_as_soon_as_its_folder_is_gone(tmp_path: Path) -> None:
    """It cannot be one that comes: the folder of its logs was made after the other one."""
    file = write_checkpoint(tmp_path, {"a": [ONE], "b": [TWO]})
    (tmp_path / PODS / "uid-of-a").rmdir()

    assert read_kubelet_devices(tmp_path, file.stat().st_mtime).held == {TWO: {"default/b"}}


def test_a_static_pod_may_come_again_with_the_same_uid(tmp_path: Path) -> None:
    """So its old logs say nothing, and it counts until it must have its folder."""
    file = write_checkpoint(tmp_path, {"a": [ONE]})
    file.write_text(file.read_text().replace("uid-of-a", "0123abcd"))
    (tmp_path / LOGS / "default_a_0123abcd").mkdir()

    assert read_kubelet_devices(tmp_path, file.stat().st_mtime).held == {ONE: {"default/a"}}
    assert read_kubelet_devices(tmp_path, long_after(file)).held == {}


def test_where_the_pods_have_their_folders_elsewhere_all_of_them_count(tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path, {"a": [ONE]}, gone=["a"])
    shutil.rmtree(tmp_path / PODS)

    assert read_kubelet_devices(tmp_path, long_after(file)).held == {ONE: {"uid-of-a"}}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"Data": 1}', b"\xff"])
def test_a_checkpoint_that_makes_no_sense_is_no_empty_one(tmp_path: Path, content: bytes) -> None:
    file = write_checkpoint(tmp_path, {"a": [ONE]})
    file.write_bytes(content)

    with pytest.raises(BadInput, match="kubelet_internal_checkpoint"):
        read_kubelet_devices(tmp_path, long_after(file))


def test_a_kubelet_that_has_written_nothing_yet_may_be_behind_a_link(tmp_path: Path) -> None:
    """It writes a checkpoint when a plugin registers for the first time."""
    (tmp_path / FOLDER).parent.mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "disk")

    assert read_kubelet_devices(tmp_path, 0.0) == NO_KUBELET


def test_a_link_that_leads_nowhere_is_no_missing_kubelet(tmp_path: Path) -> None:
    """Seen from a container the folder behind it may be out of sight."""
    (tmp_path / FOLDER).parent.mkdir(parents=True)
    (tmp_path / FOLDER).symlink_to("/nowhere/kubelet")

    with pytest.raises(BadInput, match="is a link that leads nowhere"):
        read_kubelet_devices(tmp_path, 0.0)
