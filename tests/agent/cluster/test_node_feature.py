# SPDX-License-Identifier: Apache-2.0
"""What the NodeFeature says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster import node_feature
from api import limits
from kube.api import Object
from labelers.decision import Absent, Decisions, Keep, Value
from tests.fakes.server import merged

MODE, COUNT = "nvidia.com/gpu.mode", "nvidia.com/gpu.count"
RULED = "example.com/gpu-memory"
"""By a rule of the admin."""
NODE: Object = {"metadata": {"name": "node-a", "uid": "u-1", "labels": {"x": "y"}}}
GFD = {
    "metadata": {
        "ownerReferences": [{"kind": "DaemonSet", "uid": "d"}, {"kind": "Pod", "uid": "p"}],
        "managedFields": [{"manager": "gpu-feature-discovery", "operation": "Update"}],
    }
}


def present(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """Our object as the API server has it."""
    made = node_feature.new_node_feature(NODE, labels or {})
    return {**made, "spec": {**made["spec"], **spec}}


def test_a_new_one_is_named_labelled_and_owned_as_nfd_master_wants_it() -> None:
    assert node_feature.new_node_feature(NODE, {MODE: "compute"}) == {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": "nvidia-features-for-node-a",
            "labels": {"nfd.node.kubernetes.io/node-name": "node-a"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u-1"}
            ],
        },
        "spec": {
            "features": {"flags": {}, "attributes": {}, "instances": {}},
            "labels": {MODE: "compute"},
        },
    }


@pytest.mark.parametrize(
    ("there", "wanted", "texts"),
    [
        (None, {MODE: Value(text="compute"), COUNT: Keep(reason="")}, {MODE: "compute"}),
        ({}, {MODE: Value(text="compute")}, {MODE: "compute"}),
        ({COUNT: "8"}, {MODE: Value(text="compute"), COUNT: Keep(reason="")},
         {MODE: "compute", COUNT: "8"}),
        ({COUNT: "8", MODE: "compute"}, {COUNT: Absent(reason="")}, {MODE: "compute"}),
        ({"zone": "a"}, {"zone": Value(text="b"), MODE: Value(text="compute")},
         {MODE: "compute"}),
        ({RULED: "1Gi", "example.com/former": "x"}, {RULED: Value(text="2Gi")}, {RULED: "2Gi"}),
        ({RULED: "1Gi"}, {RULED: Keep(reason="")}, {RULED: "1Gi"}),
        ({RULED: "1Gi"}, {RULED: Absent(reason="")}, {}),
    ],
)  # fmt: skip
def test_its_labels_are_ours_as_decided(
    there: dict[str, str] | None, wanted: Decisions, texts: dict[str, str]
) -> None:
    before = None if there is None else present(there)

    assert node_feature.feature_labels(before, wanted).texts == texts


def test_a_text_that_nfd_would_look_up_is_dropped() -> None:
    found = node_feature.feature_labels(
        None, {MODE: Value(text="@cpu.model"), COUNT: Value(text="8")}
    )

    assert found.texts == {COUNT: "8"}
    assert found.dropped == {MODE: "'@cpu.model' would be a reference"}


def test_labels_beyond_the_limit_are_dropped() -> None:
    many: Decisions = {f"gpuscape.io/count.m-{at:03d}": Value(text="1") for at in range(300)}

    found = node_feature.feature_labels(None, many)

    assert list(found.texts) == list(many)[: limits.MOST_LABELS]
    assert list(found.dropped) == list(many)[limits.MOST_LABELS :]
    assert set(found.dropped.values()) == {f"a NodeFeature may have {limits.MOST_LABELS} labels"}


@pytest.mark.parametrize(
    ("there", "patch"),
    [
        (present({MODE: "compute"}), {}),
        (present({MODE: "compute"}, features={}), {}),
        (present({}), {"spec": {"labels": {MODE: "compute"}}}),
        (present({MODE: "graphics", COUNT: "8"}),
         {"spec": {"labels": {MODE: "compute", COUNT: None}}}),
        (present({MODE: "compute"}, features={"flags": {"x": {"elements": {}}}}),
         {"spec": {"features": {"flags": {"x": None}}}}),
        ({"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "node-b", "app": "x"}}},
         {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "node-a", "app": None}},
          "spec": {"labels": {MODE: "compute"}}}),
        ({"metadata": {}},
         {"metadata": {"labels": {"nfd.node.kubernetes.io/node-name": "node-a"}},
          "spec": {"labels": {MODE: "compute"}}}),
    ],
)  # fmt: skip
def test_a_patch_puts_right_what_differs_and_nothing_else(there: Object, patch: Object) -> None:
    assert node_feature.feature_patch(there, "node-a", {MODE: "compute"}) == patch


TEXTS = st.dictionaries(st.sampled_from(["a", "b", MODE]), st.sampled_from(["1", "2"]))
SETS = st.dictionaries(
    st.sampled_from(["flags", "instances"]), st.dictionaries(st.just("x"), TEXTS)
)


@given(TEXTS, SETS, TEXTS, TEXTS)
def test_once_patched_nothing_is_left_to_change(
    labels: dict[str, str], features: Object, meta_labels: dict[str, str], texts: dict[str, str]
) -> None:
    before = present(labels, features=features)
    before["metadata"]["labels"] = meta_labels

    after = merged(before, node_feature.feature_patch(before, "node-a", texts))

    assert node_feature.feature_patch(after, "node-a", texts) == {}
    assert after["spec"]["labels"] == texts
    assert after["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "node-a"}


def test_one_is_ours_by_its_manager_or_by_a_node_that_owns_it_alone() -> None:
    manager = {
        "metadata": {"managedFields": [{"manager": "kubectl"}, {"manager": "gpuscape-agent"}]}
    }

    assert node_feature.is_ours(manager, "gpuscape-agent")
    assert node_feature.is_ours(present(), "gpuscape-agent")
    assert not node_feature.is_ours(GFD, "gpuscape-agent")
    assert not node_feature.is_ours({"metadata": {}}, "gpuscape-agent")


def test_one_of_a_node_that_was_made_anew_is_about_to_go() -> None:
    assert node_feature.is_doomed(present(), "u-2")
    assert not node_feature.is_doomed(present(), "u-1")
    assert not node_feature.is_doomed({"metadata": {}}, "u-1")
