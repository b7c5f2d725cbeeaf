# SPDX-License-Identifier: Apache-2.0
"""Which annotations a node gets, and when they stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api import keys, topology_annotation
from discovery.model import Driver, GpuState, NodeSnapshot, Reason
from labelers.annotations import node_annotations, topology_of
from labelers.decision import Absent, Keep, Value
from labelers.diff import applied
from tests import build


def test_a_node_whose_gpus_all_answer_gets_its_topology() -> None:
    snapshot = build.node(gpus=(build.gpu(0), build.gpu(1)))
    assert node_annotations(snapshot) == {
        keys.TOPOLOGY: Value(text=topology_annotation.encode(topology_of(snapshot)))
    }


SILENT = build.silent(1, GpuState.HUNG)
WITH_SILENT = build.node(gpus=(build.gpu(0), SILENT))


def written(snapshot: NodeSnapshot, on_node: str | None) -> str | None:
    """What the Node has after the agent saw this snapshot."""
    before = {} if on_node is None else {keys.TOPOLOGY: on_node}
    return applied(before, node_annotations(snapshot)).get(keys.TOPOLOGY)


def test_a_gpu_that_does_not_answer_leaves_the_topology_as_it_was_and_is_named() -> None:
    assert written(WITH_SILENT, "whatever it was") == "whatever it was"
    decision = node_annotations(WITH_SILENT)[keys.TOPOLOGY]
    assert isinstance(decision, Keep)
    assert SILENT.bus_id in decision.reason


def test_a_node_without_topology_gets_what_is_known_and_what_is_not_is_marked() -> None:
    found = topology_annotation.decode(written(WITH_SILENT, None) or "")
    assert found is not None
    assert (found.n, found.miss, found.bus) == (2, (1,), ("0000:10:00.0", SILENT.bus_id))


def test_a_node_without_topology_gets_none_while_gpus_may_yet_answer() -> None:
    assert written(replace(WITH_SILENT, settling=True), None) is None


@pytest.mark.parametrize("what", ["links", "fabric", "mig", "uuid"])
def test_one_fact_that_was_never_read_is_not_published_as_nothing(what: str) -> None:
    gpus = (build.gpu(0), build.lacking(build.gpu(1), what, Reason.FAILED))
    snapshot = build.node(gpus=gpus)
    assert written(snapshot, "whatever it was") == "whatever it was"
    found = topology_annotation.decode(written(snapshot, None) or "")
    assert found is not None
    assert found.miss == (1,)


def test_without_a_driver_the_topology_stays() -> None:
    assert isinstance(node_annotations(build.node(driver=Driver()))[keys.TOPOLOGY], Keep)


def test_a_node_without_gpus_has_no_topology() -> None:
    assert isinstance(node_annotations(build.node())[keys.TOPOLOGY], Absent)
