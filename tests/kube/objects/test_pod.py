# SPDX-License-Identifier: Apache-2.0
"""What a pod's phase, conditions and volumes mean."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kube.objects.pod import Pod


@pytest.mark.parametrize(
    ("phase", "is_finished"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
        (None, False),
    ],
)
def test_a_pod_is_finished_in_the_two_last_phases(phase: str | None, *, is_finished: bool) -> None:
    assert Pod.from_object({"status": {"phase": phase}}).is_finished is is_finished


def test_a_pod_is_bound_once_it_has_a_node() -> None:
    assert Pod.from_object({"spec": {"nodeName": "a"}}).is_bound
    assert not Pod.from_object({"spec": {"nodeName": ""}}).is_bound
    assert not Pod.from_object({"spec": {"nodeName": None}}).is_bound


def conditions(**statuses: str) -> dict[str, Any]:
    listed = [
        {"type": type_, "status": status, "lastTransitionTime": f"at {type_}"}
        for type_, status in statuses.items()
    ]
    return {"status": {"conditions": listed}}


def test_a_pod_is_ready_and_bound_since_by_its_conditions() -> None:
    is_ready = Pod.from_object(conditions(PodScheduled="True", Ready="True"))
    waits = Pod.from_object(conditions(PodScheduled="False", Ready="Unknown"))
    assert (is_ready.is_ready, is_ready.bound_at) == (True, "at PodScheduled")
    assert (waits.is_ready, waits.bound_at) == (False, "")
    assert (Pod().is_ready, Pod().bound_at) == (False, "")


def test_the_controller_is_the_one_owner_that_makes_it_anew() -> None:
    owners = [{"name": "a"}, {"name": "b", "controller": True}, {"name": "c", "controller": None}]
    controller = Pod.from_object({"metadata": {"ownerReferences": owners}}).metadata.controller
    assert controller is not None
    assert controller.name == "b"


_THREADS = """
import threading
from kube.lease import Lease
from kube.objects.node import Node
from kube.objects.pod import Pod
start = threading.Barrier(8)
def read():
    start.wait()
    for kind in (Pod, Node, Lease):
        kind.from_object({"metadata": {"labels": None}})
        kind.from_json(b'{"spec": {}}')
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_many_threads_may_read_the_first_objects_of_a_program() -> None:
    ended = subprocess.run([sys.executable, "-c", _THREADS], check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
