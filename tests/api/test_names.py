# SPDX-License-Identifier: Apache-2.0
"""Names of objects in the cluster: they are what an upgrade or another program must find."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from api import names


def test_objects_outside_the_namespace_name_it_unless_it_is_the_usual_one() -> None:
    assert names.clusterwide("gpuscape-agent", "gpuscape") == "gpuscape-agent"
    assert names.clusterwide("gpuscape-agent", "other") == "gpuscape-agent.other"


def test_an_account_is_called_as_the_api_server_calls_it() -> None:
    assert names.username("agent", "ns") == "system:serviceaccount:ns:agent"


def test_what_belongs_to_a_node_or_a_pod_has_one_name() -> None:
    assert names.agent_lease("node-a") == "gpuscape-node-a"
    assert names.node_feature("node-a") == "nvidia-features-for-node-a"
    assert names.pod_event("uid-a") == "gpuscape-uid-a"


LONG = "node-" + "a.b-" * 62
"""A Node's name of 253 characters, the most there may be."""


@pytest.mark.parametrize(
    ("name", "prefix"),
    [(names.agent_lease, "gpuscape-"), (names.node_feature, "nvidia-features-for-")],
)
@pytest.mark.parametrize("length", [233, 234, 244, 245, 253])
def test_objects_of_long_named_nodes_have_names_that_kubernetes_takes(
    name: Callable[[str], str], prefix: str, length: int
) -> None:
    node = LONG[: length - 1] + "z"
    made = name(node)
    assert len(made) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)
    assert (made == prefix + node) == (len(prefix) + length <= 253)


def test_nodes_that_differ_in_their_last_letter_have_objects_of_their_own() -> None:
    one, other = LONG[:-1] + "x", LONG[:-1] + "y"
    assert names.agent_lease(one) != names.agent_lease(other)
    assert names.node_feature(one) != names.node_feature(other)


def test_a_leases_node_is_in_its_name_or_is_the_owner_that_the_name_was_made_of() -> None:
    node = LONG[:-1] + "z"
    assert names.node_of_lease("gpuscape-node-a", ()) == "node-a"
    assert names.node_of_lease("gpuscape-node-a", ("node-b",)) == "node-a"
    assert names.node_of_lease(names.agent_lease(node), ("node-b", node)) == node


def test_a_host_name_becomes_the_node_name_that_the_kubelet_makes_of_it() -> None:
    """Source: Kubernetes, GetHostname of pkg/util/node and its test."""
    assert names.kubelet_node_name("  GPU-Node-1.Example.COM \n") == "gpu-node-1.example.com"
