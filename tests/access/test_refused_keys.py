# SPDX-License-Identifier: Apache-2.0
"""The Node sink under policies that refuse some of its keys: the rest is written all the same."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from agent.cluster.node_sink import NodeSink
from api import names
from kube.api import NODES
from labelers.decision import Decisions, Value
from tests.access.ask import Case, label, merge
from tests.access.node_cases import NODE
from tests.access.stage import ALL_POLICIES, ENFORCED_SECONDS, Roles, Stage
from tests.agent.cluster.sinks import Said
from tests.controlplane.plane import Plane
from tests.kube.clusters import client
from tools.access import cel
from tools.access.nodes import AGENT_LABELS, AGENT_NODE, changed_but
from tools.access.policy import Policy, none_of

pytestmark = pytest.mark.cluster

NEW = {f"gpuscape.io/nvlink.{part}" for part in ("class", "island")}
"""Labels that the version before did not know."""
WANTED: Decisions = {key.name: Value(text="4") for key in AGENT_LABELS if key.pattern is None}
HOUR = 3600.0


def of_the_version_before() -> Policy:
    """The policy of the Node as it was before there were the new labels."""
    known = [key for key in AGENT_LABELS if key.name not in NEW]
    foreign = changed_but("Labels", cel.one_of("k", known))
    return replace(AGENT_NODE, variables={**AGENT_NODE.variables, "foreignLabels": foreign})


def of_others(keys: set[str]) -> Policy:
    """Somebody else's, whose message names no key."""
    culprits = f"object.metadata.?labels.orValue({{}}).filter(k, k in {cel.listed(sorted(keys))})"
    rule = replace(none_of("labels", culprits, "ask the platform team"), culprits=None)
    return Policy(
        name="others",
        holder=names.AGENT,
        group="",
        resources=("nodes",),
        operations=("UPDATE",),
        rules=(rule,),
    )


@dataclass
class Scene:
    """A stage, and the sink of the agent there, with a clock that the test moves on."""

    stage: Stage
    sink: NodeSink
    said: Said
    now: float = 1000.0

    def run(self, seconds: float) -> None:
        """Tick as the agent does, at once where it asks for that."""
        until = self.now + seconds
        while self.now < until:
            node = self.stage.plane.demand("GET", f"/api/v1/nodes/{self.stage.node}")
            self.sink.observe(node)
            self.now += min(max(self.sink.tick(self.now), 0.001), 10.0)

    def missing(self) -> set[str]:
        """Labels that the Node does not show as wanted."""
        node = self.stage.plane.demand("GET", f"/api/v1/nodes/{self.stage.node}")
        there = node["metadata"]["labels"]
        return {key for key in WANTED if there.get(key) != "4"}

    def wait(self, key: str, *, refused: bool) -> None:
        """Wait until a label is refused, or let through."""
        case = Case(name=key, ask=merge(NODE, label(key, "probe")))
        deadline = time.monotonic() + ENFORCED_SECONDS
        while self.stage.is_refusal(self.stage.answer(case, dry_run=True)) != refused:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@contextlib.contextmanager
def scene(plane: Plane, *policies: Policy) -> Iterator[Scene]:
    """The agent's sink under these policies; it is to write all labels."""
    stage = Stage(plane, Roles.SHIPPED, policies)
    plane.demand(
        "PATCH",
        f"/api/v1/nodes/{stage.node}?fieldManager=other-applier&force=true",
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": stage.node}},
        content_type="application/apply-patch+yaml",
    )
    kubeconfig = plane.kubeconfig(token=stage.bound_token())
    said = Said()
    try:
        with contextlib.closing(client(names.AGENT, kubeconfig)) as api:
            reports = said.reports(NODES.kind)
            sink = NodeSink(api, stage.node, may_write=lambda: True, reports=reports)
            sink.set_desired(WANTED, {})
            yield Scene(stage=stage, sink=sink, said=said)
    finally:
        stage.close()


def others_but_node() -> list[Policy]:
    return [it for it in ALL_POLICIES if it.name != AGENT_NODE.name and it.holder == names.AGENT]


def test_an_image_that_is_newer_than_access_yaml_writes_all_but_the_new_labels(
    any_plane: Plane,
) -> None:
    before = of_the_version_before()
    with scene(any_plane, *others_but_node(), before) as it:
        it.stage.wait_until_enforced()
        it.wait(min(NEW), refused=True)

        it.run(60)
        missing, refused = it.missing(), list(it.said.refused)
        it.stage.uninstall([before])
        it.stage.install([AGENT_NODE])
        it.wait(min(NEW), refused=False)
        it.wait("gpuscape.io/x", refused=True)
        it.run(HOUR / 2)

        assert missing == NEW
        assert refused == [0, len(NEW)]
        assert it.missing() == set()
        assert it.said.refused == [0, len(NEW), 0]
        it.stage.uninstall([AGENT_NODE])


def test_a_label_that_a_policy_of_others_refuses_without_a_name_is_found(plane: Plane) -> None:
    bad = {"nvidia.com/gpu.machine"}
    with scene(plane, *others_but_node(), AGENT_NODE) as it:
        it.stage.wait_until_enforced()
        it.stage.install([of_others(bad)])
        try:
            it.wait(min(bad), refused=True)
            it.run(HOUR / 2)
        finally:
            it.stage.uninstall([of_others(bad)])

        assert it.missing() == bad
        assert it.said.refused == [0, len(bad)]
        ((reason, note),) = it.said.events
        assert reason == "KeysRefused"
        assert "ask the platform team" in note
