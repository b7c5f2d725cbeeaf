# SPDX-License-Identifier: Apache-2.0
"""Who has GPUs open, by a /proc of files, as a container sees the host's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from discovery.host.device_files import (
    PROC,
    ancestors,
    openers,
    proc_folder,
    process_name,
    whole_process_name,
)

POD = "0c5f1c7e-5d3a-4f0e-9a43-1f2e3d4c5b6a"
PODS_CGROUP = f"0::/kubepods/burstable/pod{POD}/abc"


def process(
    proc: Path, pid: int, name: str, *files: str, parent: int = 1, cgroup: str = "0::/a.service"
) -> None:
    """A process with these files open."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "stat").write_text(f"{pid} ({name} (x) y) S {parent} 1 1 0\n")
    (folder / "cgroup").write_text(f"1:name=systemd:/\n{cgroup}\n")
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    process(proc, 1, "init", parent=0)
    process(proc, 40, "dcgm) S 9", "/dev/nvidiactl", "/dev/nvidia1", "/var/log/x")
    process(proc, 50, "python", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", parent=40)
    process(proc, 60, "own", "/dev/nvidia0")
    (proc / "self").symlink_to("60")
    caps = proc / "driver/nvidia-caps"
    caps.mkdir(parents=True)
    (caps / "mig-minors").write_text("gpu2/gi1/access 12\ngpu2/gi1/ci0/access 13\n")
    return tmp_path


def test_the_host_s_processes_are_looked_at_where_its_root_is_mounted(host: Path) -> None:
    assert openers(host) == {1: {40}, 0: {50}, 2: {50}}
    assert proc_folder(host) == host / "proc"


def test_a_root_without_processes_has_those_of_this_namespace(tmp_path: Path) -> None:
    (tmp_path / "proc/driver").mkdir(parents=True)
    assert proc_folder(tmp_path) == PROC
    assert process_name(os.getpid())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"/usr/bin/gpu-feature-discovery\0--oneshot\0", "gpu-feature-discovery"),
        (b"gpu-feature-discovery\0", "gpu-feature-discovery"),
        (b"", "gpu-feature-dis"),
        (b"/bin/sh\0gpu-feature-discovery\0", "gpu-feature-dis"),
        (b"gpu-feature-dis\n\0", "gpu-feature-dis"),
    ],
)
def test_a_name_that_the_kernel_cuts_is_whole_where_the_command_line_has_it(
    tmp_path: Path, command: bytes, name: str
) -> None:
    process(tmp_path, 40, "gpu-feature-dis")
    (tmp_path / "40/cmdline").write_bytes(command)

    assert whole_process_name(40, tmp_path) == name
    assert whole_process_name(41, tmp_path) == ""


def test_a_simulated_machine_s_files_are_those_below_its_root(host: Path) -> None:
    (host / "proc/50/fd/9").symlink_to(f"{host}/dev/nvidia7")
    assert openers(host, simulated=True) == {7: {50}}


def test_ancestors_go_up_to_the_first_whatever_a_name_looks_like(host: Path) -> None:
    assert list(ancestors(50, host / "proc")) == [40, 1]
    assert list(ancestors(12345, host / "proc")) == []


def test_a_circle_of_parents_ends(host: Path) -> None:
    process(host / "proc", 80, "a", parent=81)
    process(host / "proc", 81, "b", parent=80)
    assert list(ancestors(80, host / "proc")) == [81]
