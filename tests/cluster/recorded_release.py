# SPDX-License-Identifier: Apache-2.0
"""Records what agent and coordinator of the release before write in each phase of a MIG change.

``python -m tests.cluster.recorded_release`` runs them and writes the folder of that release in
``tests/fleet/releases``; ``tests/fleet/test_releases.py`` has today's programs read it.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from tests import previous_tree
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import install_coordinator
from tests.cluster.upgraded_node import ChangePhase, Upgraded, UpgradedNode, upgraded_node
from tests.controlplane.plane import Object, Plane

RELEASES: Final = Path(__file__).parents[1] / "fleet" / "releases"
_PREFIXES: Final = ("gpuscape.io/mig-", "gpuscape.io/drain", "cluster-autoscaler.", "karpenter.")


def record(folder: Path) -> None:
    """Write a file for each phase into this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        program = previous_tree.release_program(place / "tree")
        with Plane.start(place / "plane", controller_manager=False) as plane:
            site = Site.create(plane, "gpuscape")
            install_coordinator(site)
            for phase in ChangePhase:
                programs = place / phase
                programs.mkdir()
                with upgraded_node(site, programs) as changing:
                    for upgraded in Upgraded:
                        changing.start(upgraded, program)
                    changing.stop_in(phase)
                    text = json.dumps(_objects(changing), indent=2, sort_keys=True)
                (folder / f"{phase}.json").write_text(f"{text}\n", encoding="utf-8")


def _objects(changing: UpgradedNode) -> Object:
    """The Node and its slot, as far as the two programs write them."""
    site = changing.site
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    node, leases = site.node(changing.name), site.plane.demand("GET", path)["items"]
    return {
        "recorded_at": int(time.time()),
        "node": {
            "name": changing.name,
            "uid": node["metadata"]["uid"],
            "unschedulable": bool(node["spec"].get("unschedulable")),
            "annotations": {
                key: text for key, text in changing.notes().items() if key.startswith(_PREFIXES)
            },
        },
        "slots": {
            lease["metadata"]["name"]: lease["metadata"]["annotations"]
            for lease in leases
            if lease["spec"].get("holderIdentity") == changing.name
        },
    }


if __name__ == "__main__":
    record(RELEASES / previous_tree.RELEASE)
