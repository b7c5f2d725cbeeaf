# SPDX-License-Identifier: Apache-2.0
"""A control plane on which the admins' files of ``examples/`` are applied, for both teams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests import examples, pages
from tests.agent.agent_process import until
from tests.cluster.scheduling import PROFILE
from tests.controlplane.own import KWOK_ANNOTATION, KWOK_GROUP
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.controlplane.reused_planes import reused_planes
from tests.examples import FOLDER, member
from tests.reused import Reused

GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-1g.5gb"
SHARED: Final = "nvidia.com/gpu.shared"
TAINTS: Final = [
    {"key": GPU, "value": "present", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
]
PAIRS: Final = {
    "gpuscape.io/nvlink.island": "2",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.family": "ampere",
}
_ADDED: Final = "ExtendedResourceToleration"


@contextmanager
def team_planes(folders: pytest.TempPathFactory) -> Iterator[Reused[Plane]]:
    """Planes to lend, each with a node of eight GPUs, one of MIG devices and one of shares."""
    with reused_planes(
        folders,
        _prepare,
        scheduler={"profiles": [{"schedulerName": PROFILE}]},
        kwok=True,
        apiserver_flags=(f"--enable-admission-plugins=NodeRestriction,{_ADDED}",),
    ) as planes:
        yield planes


def _prepare(plane: Plane) -> None:
    for name in examples.ADMINS:
        apply(plane, name)
    type_block(plane, "cluster")
    kwok = {KWOK_ANNOTATION: KWOK_GROUP}
    for name, labels, capacity in (
        ("pairs", PAIRS, {GPU: "8"}),
        ("mig", {"nvidia.com/gpu.family": "ampere"}, {MIG: "5"}),
    ):
        plane.make_node(name, labels=labels, capacity=capacity, annotations=kwok)
        taints = {"spec": {"taints": TAINTS}}
        plane.demand("PATCH", f"/api/v1/nodes/{name}", taints, content_type=MERGE_PATCH)
    plane.make_node("shared", capacity={SHARED: "4"}, annotations=kwok)
    until(lambda: all("status" in it and it["status"].get("hard") for it in _quotas(plane)))


def apply(plane: Plane, name: str, *options: str) -> str:
    """As a person applies it; a field that the API server does not know fails."""
    strict = ("--server-side", "--validate=strict", "--force-conflicts")
    return plane.kubectl(*options, "apply", *strict, "-f", FOLDER / name)


def type_block(plane: Plane, name: str) -> None:
    """Run the lines of a block of the page; in a team's namespace as somebody of that team."""
    for line in pages.marked(pages.page("docs/examples.md"), name).splitlines():
        words = line.replace("examples/", f"{FOLDER}/").removeprefix("kubectl ").split()
        if words[0] == "-n":
            words = [*member(words[1]), *words[2:]]
        plane.kubectl(*words)


def _quotas(plane: Plane) -> list[Object]:
    """Quotas of both teams."""
    listed = plane.demand("GET", "/api/v1/resourcequotas")["items"]
    return [it for it in listed if it["metadata"]["namespace"] in examples.PEOPLE]
