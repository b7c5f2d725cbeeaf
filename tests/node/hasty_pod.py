# SPDX-License-Identifier: Apache-2.0
"""A pod with our image that is caught in its first moment, when Python is about to start.

Its processor time is limited so far that the moment lasts for a second; then it is stopped.
"""

from __future__ import annotations

import http.client
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from tests.agent.agent_process import runs, until
from tests.controlplane.plane import Object
from tests.deploy.daemonset import container, daemonset
from tests.node.cgroups import FIRST
from tests.node.gpu_cluster import PODS
from tests.node.process_cgroup import ProcessCgroup
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON, RealNode

NAME: Final = "hasty"
ARGUMENTS: Final = ("--standalone", "--simulate", "t4", "--node-name", NAME)
LITTLE: Final = "10m"
"""Processor time, of which Python's start takes two seconds. No pod has less."""
PATIENCE_SECONDS: Final = 120
"""Of its kubelet, before it kills: more than it takes on any machine to start and to end."""
TRIES: Final = 10
"""On a machine that is busy enough the moment may be over when it is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HastyPod:
    """One that is stopped."""

    cluster: RealCluster
    process: psutil.Process
    since: str

    @classmethod
    def caught(cls, cluster: RealCluster, node: RealNode) -> Self:
        """Make it and stop its container's first process: Python, before it handles a signal."""
        for _ in range(TRIES):
            pod = cls._stopped(cluster, node)
            if signal.SIGINT not in pod._signals("SigCgt"):  # the first that it handles
                return pod
            pod.process.kill()
            cluster.plane.demand("DELETE", f"{PODS}/{NAME}?gracePeriodSeconds=1")
            pod.wait_until_gone()
        raise AssertionError(f"Python has started {TRIES} times before it was found")

    @classmethod
    def _stopped(cls, cluster: RealCluster, node: RealNode) -> Self:
        since = cluster.resource_version()
        uid = cluster.plane.demand("POST", PODS, _manifest(node))["metadata"]["uid"]
        machine = ProcessCgroup.of(psutil.Process(node.first_process)).folder("cpu")
        if machine.name == FIRST:
            machine = machine.parent
        found: list[int] = []

        def is_there() -> bool:
            files = machine.glob(f"**/pod{uid}/*/cgroup.procs")  # all processes take long to read
            found[:] = [int(it) for file in files for it in _lines(file) if _is_python(it)]
            return bool(found)

        until(is_there, SOON)
        process = psutil.Process(found[0])
        process.send_signal(signal.SIGSTOP)
        until(lambda: process.status() == psutil.STATUS_STOPPED, SOON)
        return cls(cluster=cluster, process=process, since=since)

    def delete(self) -> None:
        """Have the kubelet end it; its SIGTERM waits or is lost for good when this returns."""
        self.cluster.plane.demand("DELETE", f"{PODS}/{NAME}")
        until(
            lambda: not runs(self.process) or signal.SIGTERM in self._signals("ShdPnd", "SigPnd"),
            SOON,
        )

    def go_on(self) -> None:
        """Let it run, as fast as it can; where it still does."""
        if runs(self.process):
            ProcessCgroup.of(self.process).lift_cpu_limit()
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> tuple[int, str]:
        """When it is gone: its container's exit code, and the reason that the kubelet had."""
        self.wait_until_gone()
        *_, last = self.cluster.versions(PODS, since=self.since, name=NAME)
        (status,) = last["status"]["containerStatuses"]
        return status["state"]["terminated"]["exitCode"], status["state"]["terminated"]["reason"]

    def wait_until_gone(self) -> None:
        """Wait until the API server knows it no more."""
        plane = self.cluster.plane
        until(lambda: plane.request("GET", f"{PODS}/{NAME}").status == http.client.NOT_FOUND, SOON)

    def _signals(self, *sets: str) -> set[int]:
        """Numbers of the signals in sets of the process. Source: proc(5)."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        masks = [int(re.findall(rf"^{name}:\s+(\w+)$", text, re.MULTILINE)[0], 16) for name in sets]
        return {number for number in signal.Signals if any(it >> number - 1 & 1 for it in masks)}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # the container ends
        return []


def _is_python(pid: str) -> bool:
    words = " ".join(_lines(Path(f"/proc/{pid}/cmdline"))).split("\0")
    return "/python" in words[0] and NAME in words


def _manifest(node: RealNode) -> Object:
    agent = container(daemonset())
    return {
        "metadata": {"name": NAME},
        "spec": {
            "nodeName": node.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": PATIENCE_SECONDS,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": NAME,
                    "image": agent["image"],
                    "imagePullPolicy": "Never",
                    "command": agent["command"],
                    "args": ["agent", *ARGUMENTS],
                    "resources": {"limits": {"cpu": LITTLE}},
                }
            ],
        },
    }
