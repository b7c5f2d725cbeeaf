"""Which annotations a node gets, and when they stay as they are."""

from __future__ import annotations

from discovery.model import Driver, GpuState
from labelers import keys, schema
from labelers.annotations import node_annotations
from labelers.decision import Absent, Keep, Value
from tests import build


def test_a_node_whose_gpus_all_answer_gets_its_topology() -> None:
    snapshot = build.node(gpus=(build.gpu(0), build.gpu(1)))
    assert node_annotations(snapshot, tm="restricted") == {
        keys.TOPOLOGY: Value(text=schema.encode(snapshot, tm="restricted"))
    }


def test_a_gpu_that_does_not_answer_leaves_the_topology_as_it_was() -> None:
    silent = build.silent(1, GpuState.HUNG)
    snapshot = build.node(gpus=(build.gpu(0), silent))
    assert node_annotations(snapshot) == {
        keys.TOPOLOGY: Keep(reason=f"{silent.bus_id} does not answer")
    }


def test_without_a_driver_the_topology_stays() -> None:
    assert isinstance(node_annotations(build.node(driver=Driver()))[keys.TOPOLOGY], Keep)


def test_a_node_without_gpus_has_no_topology() -> None:
    assert isinstance(node_annotations(build.node())[keys.TOPOLOGY], Absent)
