# SPDX-License-Identifier: Apache-2.0
"""Names of objects in the cluster: they are what an upgrade or another program must find."""

from __future__ import annotations

from api import names


def test_objects_outside_the_namespace_name_it_unless_it_is_the_usual_one() -> None:
    assert names.clusterwide("gpuscape-agent", "gpuscape") == "gpuscape-agent"
    assert names.clusterwide("gpuscape-agent", "other") == "gpuscape-agent.other"


def test_an_account_is_called_as_the_api_server_calls_it() -> None:
    assert names.username("agent", "ns") == "system:serviceaccount:ns:agent"


def test_what_belongs_to_a_node_or_a_pod_has_one_name() -> None:
    assert names.lease("node-a") == "gpuscape-node-a"
    assert names.node_feature("node-a") == "nvidia-features-for-node-a"
    assert names.pod_event("uid-a") == "gpuscape-uid-a"
