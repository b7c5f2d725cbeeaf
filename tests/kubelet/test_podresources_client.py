# SPDX-License-Identifier: Apache-2.0
"""What the kubelet tells arrives as it was told; every failure is one clear sentence."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from base.errors import Transient
from kubelet.podresources import podresources_pb2 as wire
from kubelet.podresources.allocation_model import (
    ClaimedDevice,
    ContainerDevices,
    PodDevices,
    ResourceDevices,
)
from kubelet.podresources.podresources_client import MAX_BYTES, PodResources
from tests.agent.agent_process import SOON, until
from tests.kubelet.podresources_server import Aborted, message, serving

A_POD = PodDevices(namespace="team", name="job-0")
NAMED = wire.PodResources(namespace="team", name="job-0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the kubelet's socket is."""
    return tmp_path / "kubelet.sock"


def pods(*listed: wire.PodResources) -> Callable[[], bytes]:
    """The answer that lists these."""
    return message(wire.ListPodResourcesResponse(pod_resources=listed))


def failure(ask: Callable[[], object]) -> str:
    """The sentence that asking ends in."""
    with pytest.raises(Transient) as caught:
        ask()
    return str(caught.value)


def test_devices_come_by_pod_and_container(path: Path) -> None:
    """The kubelet tells one resource in parts, by NUMA node; pods without devices are told too."""
    main = wire.ContainerResources(
        name="main",
        devices=[
            wire.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-a", "GPU-b"]),
            wire.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-c"]),
        ],
    )
    side = wire.ContainerResources(name="side")
    pod = wire.PodResources(namespace="team", name="job-1", containers=[main, side])

    with serving(path, {"List": pods(NAMED, pod)}):
        listed = PodResources(path).list()

    assert listed == (
        A_POD,
        PodDevices(
            namespace="team",
            name="job-1",
            containers=(
                ContainerDevices(
                    name="main",
                    resources=(
                        ResourceDevices(resource="nvidia.com/gpu", ids=("GPU-a", "GPU-b")),
                        ResourceDevices(resource="nvidia.com/gpu", ids=("GPU-c",)),
                    ),
                ),
                ContainerDevices(name="side"),
            ),
        ),
    )


def test_claims_come_with_all_that_the_kubelet_tells_of_their_devices(path: Path) -> None:
    """Kubelets without the newer fields leave their text empty."""
    full = wire.ClaimResource(
        cdi_devices=[wire.CDIDevice(name="k8s.gpu.nvidia.com/claim=u-gpu-0")],
        driver_name="gpu.nvidia.com",
        pool_name="node-a",
        device_name="gpu-0",
        share_id="s",
    )
    old = wire.ClaimResource(cdi_devices=[wire.CDIDevice(name="vendor/class=x")])
    claim = wire.DynamicResource(
        claim_name="one-gpu", claim_namespace="team", claim_resources=[full, old]
    )
    pod = wire.PodResources(
        containers=[wire.ContainerResources(name="main", dynamic_resources=[claim])]
    )

    with serving(path, {"List": pods(pod)}):
        ((listed,)) = PodResources(path).list()

    assert listed.containers[0].claims == (
        ClaimedDevice(
            claim="one-gpu",
            driver="gpu.nvidia.com",
            pool="node-a",
            device="gpu-0",
            share="s",
            cdi=("k8s.gpu.nvidia.com/claim=u-gpu-0",),
        ),
        ClaimedDevice(claim="one-gpu", cdi=("vendor/class=x",)),
    )


def test_allocatable_devices_come_by_resource(path: Path) -> None:
    """Of all resources; which of them count is not decided here."""
    devices = [
        wire.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-a"]),
        wire.ContainerDevices(resource_name="acme.com/nic", device_ids=["0", "1"]),
    ]
    answer = message(wire.AllocatableResourcesResponse(devices=devices))

    with serving(path, {"GetAllocatableResources": answer}):
        offered = PodResources(path).allocatable()

    assert offered == (
        ResourceDevices(resource="nvidia.com/gpu", ids=("GPU-a",)),
        ResourceDevices(resource="acme.com/nic", ids=("0", "1")),
    )


def test_an_answer_as_large_as_the_kubelet_may_send_is_read(path: Path) -> None:
    """gRPC itself would refuse it from 4 MiB on."""
    long = wire.PodResources(name="x" * (MAX_BYTES - 64))

    with serving(path, {"List": pods(long)}):
        (listed,) = PodResources(path).list()

    assert len(listed.name) == MAX_BYTES - 64


def test_a_larger_answer_is_refused(path: Path) -> None:
    """Rather than filling the memory."""
    with serving(path, {"List": pods(wire.PodResources(name="x" * MAX_BYTES))}):
        said = failure(PodResources(path).list)

    assert said == f"{path}: the kubelet's answer is larger than {MAX_BYTES} bytes"


def test_a_restarted_kubelet_is_asked_at_its_new_socket(path: Path) -> None:
    """The old one is gone, or still there and old: only the path counts."""
    kubelet = PodResources(path)
    with serving(path, {"List": pods()}):
        before = kubelet.list()
        with serving(path, {"List": pods(NAMED)}):
            after = kubelet.list()

    assert (before, after) == ((), (A_POD,))


def test_a_new_socket_is_asked_while_a_question_still_hangs_at_the_old_one(path: Path) -> None:
    """Its connection is open, and must not be shared: that leads to the old kubelet."""
    asked, let_go = threading.Event(), threading.Event()

    def hang() -> bytes:
        asked.set()
        let_go.wait()
        return pods()()

    kubelet = PodResources(path, deadline_seconds=SOON)
    with serving(path, {"List": hang}), ThreadPoolExecutor() as pool:
        before = pool.submit(kubelet.list)
        try:
            assert asked.wait(SOON)
            with serving(path, {"List": pods(NAMED)}):
                assert kubelet.list() == (A_POD,)
        finally:
            let_go.set()
        assert before.result() == ()


def test_a_kubelet_that_comes_back_is_asked_at_once(path: Path) -> None:
    """A failure leaves no waiting time behind, as a kept channel would."""
    kubelet = PodResources(path)
    for _ in range(5):
        failure(kubelet.list)

    with serving(path, {"List": pods(NAMED)}):
        assert kubelet.list() == (A_POD,)


def test_a_missing_socket_is_told_with_what_to_look_for(path: Path) -> None:
    """Kubelet down, or folder not mounted: the agent cannot tell which."""
    assert failure(PodResources(path).list) == (
        f"{path}: no such socket: the kubelet is down, or its folder is not mounted here"
    )


def test_a_socket_without_a_listener_is_told(path: Path) -> None:
    """As it is left behind by a kubelet that was killed."""
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(os.fspath(path))

        assert (
            failure(PodResources(path).list) == f"{path}: nobody answers there: Connection refused"
        )


def test_a_socket_without_rights_is_told_with_the_uid_it_takes(path: Path) -> None:
    """It is root's; whoever runs this gives its rights up for the moment."""
    with serving(path, {"List": pods()}), without_rights(path):
        said = failure(PodResources(path).list)

    assert said == f"{path}: no right to connect: run as uid 0, whose socket it is"


@contextmanager
def without_rights(path: Path) -> Iterator[None]:
    """Root passes over file modes, so it becomes nobody too."""
    path.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_kubelet_that_hangs_is_given_up_after_the_deadline(path: Path) -> None:
    """The question before it may still hang there."""
    let_go = threading.Event()

    def hang() -> bytes:
        let_go.wait()
        return b""

    with serving(path, {"List": hang}):
        said = failure(PodResources(path, deadline_seconds=0.2).list)
        let_go.set()

    assert said == f"{path}: the kubelet did not answer within 0.2 s"


def test_a_kubelet_that_is_asked_too_often_says_so(path: Path) -> None:
    """It answers 100 questions a second, its device plugins' users all together."""

    def refuse() -> bytes:
        raise Aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    with serving(path, {"List": refuse}):
        said = failure(PodResources(path).list)

    assert said == f"{path}: the kubelet refused: rejected by rate limit (RESOURCE_EXHAUSTED)"


def test_a_kubelet_without_the_api_is_told_with_the_version_it_takes(path: Path) -> None:
    """Before 1.28 the method may be off."""
    with serving(path, {}):
        said = failure(PodResources(path).allocatable)

    assert said == f"{path}: no pod-resources API v1 there: it takes a kubelet of 1.28 or later"


def test_an_answer_that_makes_no_sense_is_told(path: Path) -> None:
    """Bytes that are no message."""
    with serving(path, {"List": lambda: b"\xff\xff\xff"}):
        said = failure(PodResources(path).list)

    assert said.startswith(f"{path}: what came back is no pod-resources answer: ")


def test_something_else_that_listens_is_told(path: Path) -> None:
    """A web server, say: the connection is made and goes no further."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        threading.Thread(target=answer_as_a_web_server, args=(listener,)).start()

        said = failure(PodResources(path).list)
        listener.shutdown(socket.SHUT_RDWR)

    assert said.startswith(f"{path}: the connection broke: ")


def answer_as_a_web_server(listener: socket.socket) -> None:
    """Until it is shut down."""
    with contextlib.suppress(OSError):
        while True:
            caller, _ = listener.accept()
            with caller, contextlib.suppress(OSError):
                caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_grpc_writes_nothing_of_its_own(path: Path) -> None:
    """Standard error is the log; a path too long is what gRPC has most to say about."""
    program = f"""
from pathlib import Path
from kubelet.podresources.podresources_client import PodResources
from base.errors import Transient
try:
    PodResources(Path("{path}" + "x" * 200)).list()
except Transient:
    print("told")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (ended.stdout, ended.stderr) == ("told\n", "")


PROGRAMS = (
    "kubelet.podresources.podresources_client",
    "tests.kubelet_nodes.play",
    "tests.bench.soak",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_grpc_reads_once_is_set_before_it_is_imported(program: str) -> None:
    """With its handlers of fork, starting a process may abort the process."""
    script = f"""
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"), os.environ.get("GRPC_VERBOSITY"))
sys.meta_path.insert(0, Watch())
import {program}
"""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GRPC_")}
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, stdout=subprocess.PIPE
    )
    assert ended.stdout == b"0 NONE\n"


def test_no_thread_and_no_connection_outlives_an_answer(path: Path) -> None:
    """In the threads that Python knows, and in the files that the process has open."""
    with serving(path, {"List": pods(NAMED)}):
        PodResources(path).list()  # gRPC's own things are made at the first question
        before = clients_threads(), connections(path)
        for _ in range(20):
            PodResources(path).list()
        until(lambda: connections(path) <= before[1])

        assert clients_threads() == before[0]


def clients_threads() -> list[threading.Thread]:
    """Without those of the server in this process, whose pool grows as it likes."""
    return [each for each in threading.enumerate() if "ThreadPoolExecutor" not in each.name]


def connections(path: Path) -> int:
    """How many ends of connections to the socket this process, which is both, has open."""
    return Path("/proc/net/unix").read_text("utf-8").count(os.fspath(path))
