# SPDX-License-Identifier: Apache-2.0
"""A stolen agent's token, used against the rollout of other nodes, on a real API server.

The shipped policies hold the token; the coordinator runs as a program. The stolen agent writes what
they let it write on its own Node, as often and in whatever order it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api import keys
from api.mig_request_annotation import new_request_id
from kube.api import NODES
from kube.api_errors import ApiError
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import (
    NodeModel,
    coordinator,
    install_coordinator,
    modelled_nodes,
    slots_in_use,
    working,
)

pytestmark = pytest.mark.cluster

HONEST = 4


@dataclass
class StolenAgent(NodeModel):
    """It reports failures with and without leave, and copies the requests of others."""

    honest: list[NodeModel] = field(default_factory=list)
    lies: int = 0

    def work(self) -> None:
        """One more lie, another one each time."""
        self.lies += 1
        match self.lies % 4:
            case 0:
                self.request = new_request_id()
                self._publish("waiting")
            case 1:
                self._publish("failed", end="rolled-back")
            case 2:
                self.request = self.honest[self.lies // 4 % len(self.honest)].request
                self._publish("waiting")
            case _:
                self._publish("stuck", end="stuck")


def test_all_honest_nodes_change_whatever_one_stolen_agent_writes(
    site: Site, tmp_path: Path
) -> None:
    install_coordinator(site)
    liar, *honest = modelled_nodes(site, HONEST + 1, "a-stolen")
    stolen = StolenAgent(plane=liar.plane, name=liar.name, api=liar.api, namespace=liar.namespace)
    stolen.honest = honest
    with working([stolen, *honest]), coordinator(site, "c", tmp_path):
        until(lambda: stolen.lies > 2 * HONEST)
        until(lambda: all(it.is_done for it in honest), 180)
        until(lambda: not {it.name for it in honest} & set(_holders(site)), 120)
    for model in honest:
        node = site.node(model.name)
        assert not node["spec"].get("unschedulable")
        assert keys.MIG_PERMIT not in site.annotations(model.name)


def _holders(site: Site) -> list[str]:
    """Nodes that have a slot."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    leases = site.plane.demand("GET", path)["items"]
    return [
        it["spec"].get("holderIdentity", "")
        for it in leases
        if it["metadata"]["name"] in slots_in_use(site)
    ]


@pytest.mark.parametrize(
    "notes",
    [
        {keys.MIG_LAYOUT: "another"},
        {keys.MIG_CORDON: "0" * 16},
        {keys.MIG_PERMIT: '{"v":2,"request":"0000000000000000","phase":"proceed"}'},
    ],
    ids=lambda notes: next(iter(notes)).partition("/")[2],
)
def test_what_the_coordinator_goes_by_is_not_the_agents_to_write(
    site: Site, notes: dict[str, str]
) -> None:
    """The rollout's name, the cordon's mark and the permit."""
    (model,) = modelled_nodes(site, 1, f"b-{next(iter(notes))[-6:]}")
    with pytest.raises(ApiError, match=r"gpuscape-(agent-node|mig-permit)"):
        model.api.patch(NODES, model.name, {"metadata": {"annotations": notes}})
