# SPDX-License-Identifier: Apache-2.0
"""Which pod a process is in, for the forms that runtimes, kubelets and namespaces write."""

from __future__ import annotations

from pathlib import Path

import pytest

from discovery.host.process_pods import (
    cgroups_of,
    hidden_own_pod,
    pod_in_cgroups,
    pod_of_process,
)
from tests.discovery.host.cgroup_forms import (
    ID,
    NEXT,
    OF_NO_POD,
    OF_OWN_POD,
    OF_PODS,
    OF_STATIC_PODS,
    OUTSIDE_OF_OWN_POD,
    OWN,
    POD,
    STATIC,
)

MACHINE, CONTAINER = "cgroup:[4026531835]", "cgroup:[4026532567]"


def reader(root: Path, *, namespace: str = CONTAINER, cgroup: str = "0::/\n") -> Path:
    """A process file system, with the process that reads it."""
    proc = root / "proc"
    (proc / "7/ns").mkdir(parents=True)
    (proc / "7/ns/cgroup").symlink_to(namespace)
    (proc / "7/cgroup").write_text(cgroup)
    (proc / "self").symlink_to("7")
    return proc


def process(proc: Path, pid: int, cgroup: str) -> None:
    """Another process."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(cgroup)


@pytest.mark.parametrize("own", [None, OWN], ids=["named", "hidden"])
@pytest.mark.parametrize("text", OF_PODS.values(), ids=OF_PODS)
def test_a_pod_is_found_by_the_cgroup_of_every_runtime(text: str, own: str | None) -> None:
    """Also for a reader whose own pod is hidden."""
    assert pod_in_cgroups(text, own) == POD


@pytest.mark.parametrize("text", OF_STATIC_PODS.values(), ids=OF_STATIC_PODS)
def test_a_static_pod_has_a_uid_of_another_form(text: str) -> None:
    assert pod_in_cgroups(text) == STATIC


@pytest.mark.parametrize("text", OF_NO_POD.values(), ids=OF_NO_POD)
def test_what_is_no_pod_s_cgroup_names_none(text: str) -> None:
    assert pod_in_cgroups(text) is None


@pytest.mark.parametrize("text", [text for text in OF_PODS.values() if text.startswith("0::")])
def test_a_path_of_version_1_names_the_same_pod(text: str) -> None:
    path = text.strip().removeprefix("0::")

    assert pod_in_cgroups(f"3:cpuset:{path}\n0::/system.slice/containerd.service\n") == POD


@pytest.mark.parametrize("text", OF_OWN_POD.values(), ids=OF_OWN_POD)
def test_a_container_next_to_the_reader_s_is_of_the_own_pod(tmp_path: Path, text: str) -> None:
    proc = reader(tmp_path)
    process(proc, 8, text)

    assert pod_of_process(proc, 8, hidden_own_pod(proc, OWN)) == OWN
    assert pod_of_process(proc, 8, hidden_own_pod(proc, None)) is None


@pytest.mark.parametrize("text", OUTSIDE_OF_OWN_POD.values(), ids=OUTSIDE_OF_OWN_POD)
def test_a_program_of_the_host_is_never_of_the_own_pod(tmp_path: Path, text: str) -> None:
    proc = reader(tmp_path)
    process(proc, 8, text)

    assert pod_of_process(proc, 8, hidden_own_pod(proc, OWN)) is None


@pytest.mark.parametrize(
    ("namespace", "cgroup"),
    [
        (MACHINE, "0::/\n"),  # without systemd all programs of a machine may be there
        (CONTAINER, f"0::/kubepods/pod{OWN}/{ID}\n"),
        (CONTAINER, f"0::/cri-containerd-{ID}.scope\n"),  # a kubelet that makes no groups for pods
        (CONTAINER, "4:memory:/docker/1\n0::/\n"),
        (CONTAINER, ""),
    ],
)
def test_where_nothing_is_hidden_a_path_without_dots_is_of_the_host(
    tmp_path: Path, namespace: str, cgroup: str
) -> None:
    proc = reader(tmp_path, namespace=namespace, cgroup=cgroup)
    process(proc, 8, "0::/init.scope\n")

    assert pod_of_process(proc, 8, hidden_own_pod(proc, OWN)) is None


def test_a_kernel_without_cgroup_namespaces_hides_nothing(tmp_path: Path) -> None:
    proc = reader(tmp_path)
    (proc / "7/ns/cgroup").unlink()

    assert hidden_own_pod(proc, OWN) is None


def test_a_process_that_has_ended_is_in_no_pod(tmp_path: Path) -> None:
    proc = reader(tmp_path)

    assert pod_of_process(proc, 12345, hidden_own_pod(proc, OWN)) is None


def test_of_a_cgroup_without_end_only_the_start_is_read(tmp_path: Path) -> None:
    proc = reader(tmp_path)
    process(proc, 8, "0::/" + "x" * (1 << 20) + f"\n0::/kubepods/pod{POD}/{NEXT}\n")

    assert pod_of_process(proc, 8) is None
    assert len(cgroups_of(proc, 8)) == 64 << 10
