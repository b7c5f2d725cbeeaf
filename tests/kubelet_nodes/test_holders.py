# SPDX-License-Identifier: Apache-2.0
"""Who holds what, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from tests.kubelet_nodes.holders import lines

TOPOLOGY = (Path(__file__).parents[1] / "golden/dgx1-v100/topology.json").read_text()


def node(name: str = "a", topology: str = TOPOLOGY) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "annotations": {keys.TOPOLOGY: topology}}}


def lease(used: int = 0, name: str = "a", **pods: int) -> dict[str, Any]:
    topology = topology_annotation.decode(TOPOLOGY)
    assert topology is not None
    annotation = StateAnnotation(
        v=state_annotation.VERSION,
        gen=topology.gen,
        seq=1,
        ok="ff",
        used=f"{used:02x}",
        pods={pod_key("team", pod): f"{mask:02x}" for pod, mask in pods.items()},
    )
    annotations = {keys.STATE: state_annotation.encode(annotation)}
    return {
        "kind": "Lease",
        "metadata": {"name": names.agent_lease(name), "annotations": annotations},
    }


def pod(name: str) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"namespace": "team", "name": name}}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0b1, "GPU 0"),
        (0b11, "GPUs 0 and 1, linked by 1 NVLink"),
        (0b1001, "GPUs 0 and 3, linked by 2 NVLinks"),
        (0b100001, "GPUs 0 and 5, not linked"),
        (0b1111, "GPUs 0, 1, 2 and 3, linked by 1 NVLink or more"),
        (0b110001, "GPUs 0, 4 and 5, not all linked"),
    ],
)
def test_a_pod_s_gpus_are_shown_with_the_links_between_them(mask: int, words: str) -> None:
    held, _ = lines([node(), lease(used=mask, job=mask), pod("job")])
    assert held == f"a: team/job holds {words}"


def test_free_gpus_come_last_on_full_and_empty_nodes() -> None:
    assert list(
        lines([node(), lease(used=0xFF, job=0xFF), pod("job"), node("b"), lease(name="b")])
    ) == [
        "a: team/job holds GPUs 0, 1, 2, 3, 4, 5, 6 and 7, not all linked",
        "a: free: no GPU",
        "b: free: GPUs 0, 1, 2, 3, 4, 5, 6 and 7",
    ]


def test_what_no_agent_has_published_is_left_out() -> None:
    bare = {"kind": "Node", "metadata": {"name": "c"}}
    assert list(lines([bare, node("b"), node(), lease(used=1, job=1)])) == [
        "a: a pod that is gone holds GPU 0",
        "a: free: GPUs 1, 2, 3, 4, 5, 6 and 7",
    ]
