# SPDX-License-Identifier: Apache-2.0
"""What the coordinator keeps on a slot's Lease, edited by hand in the middle of a change.

The change ends, the slot is free, and no cordon is left but where the record says that it was a
person's. Nothing is done to a node that the record names by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api import keys, names
from fleet import rollback_record
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import RolloutSettings
from fleet.slot_lease import slot_of
from kube.api import LEASES
from tests.fleet.simulated_fleet import START, Cluster
from tests.fleet.test_rollouts import assert_clean

TERMS = RolloutSettings(slots=2, canary_seconds=10.0, retry_seconds=10.0, end_seconds=200.0)
OTHER = "n1"


def changed(**values: Any) -> Callable[[Cluster, RollbackRecord], str | None]:
    """The record with other values."""

    def edit(_cluster: Cluster, record: RollbackRecord) -> str | None:
        return rollback_record.encode(msgspec.structs.replace(record, **values))

    return edit


def of_another_node(cluster: Cluster, record: RollbackRecord) -> str | None:
    """The record of the same change, with another node's name and UID."""
    uid = cluster.node(OTHER)["metadata"]["uid"]
    return rollback_record.encode(msgspec.structs.replace(record, node=OTHER, uid=uid))


EDITS: dict[str, Callable[[Cluster, RollbackRecord], str | None]] = {
    "removed": lambda _cluster, _record: None,
    "damaged": lambda _cluster, _record: "{",
    "of another version": lambda _cluster, _record: '{"v":1}',
    "of another node": of_another_node,
    "of another UID": changed(uid="x"),
    "of another request": changed(request="0" * 16),
    "not cordoned": changed(cordoned_at=0),
    "permitted long ago": changed(proceed_at=int(START) - 10_000),
    "cordoned long ago": changed(cordoned_at=int(START) - 10_000),
    "cordoned in times to come": changed(cordoned_at=int(START) + 10_000_000),
    "ended": changed(outcome="applied"),
    "ended otherwise": changed(outcome="rolled-back", counted=True),
    "other drain": changed(drain="node"),
    "no drain": changed(drain="gently"),
    "other offers": changed(allocatable={"nvidia.com/gpu": 3}),
    "other labels": changed(labels={"nvidia.com/gpu.deploy.driver": "true"}),
}


@pytest.mark.parametrize("phase", ["cordoned", "proceed"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_record_that_a_person_edits_ends_and_leaves_nothing(
    edit: Callable[[Cluster, RollbackRecord], str | None], phase: str
) -> None:
    cluster = Cluster(nodes=2, terms=TERMS)
    cluster.annotate(OTHER, keep_cordoned="")
    cluster.cordon(OTHER)
    cluster.wish("sevenths", "n0")
    cluster.pass_until(
        lambda: f'"phase":"{phase}"' in cluster.notes("n0").get(keys.MIG_PERMIT, ""), within=60
    )
    (lease,) = cluster.open_leases()
    record = slot_of(lease).record
    assert record is not None
    patch = {"metadata": {"annotations": {keys.MIG_ROLLBACK_RECORD: edit(cluster, record)}}}
    cluster.people.patch(LEASES, lease["metadata"]["name"], patch, namespace=names.NAMESPACE)

    cluster.pass_until(lambda: cluster.agents["n0"].layout == "sevenths", within=1200)
    cluster.pass_until(lambda: is_at_rest_on(cluster, "n0"), within=300)
    assert_clean(cluster, OTHER)
    assert cluster.is_cordoned(OTHER)
    assert keys.MIG_PERMIT not in cluster.notes(OTHER)


def is_at_rest_on(cluster: Cluster, node: str) -> bool:
    """No slot is taken, and nothing of ours is on the node."""
    return not cluster.open_leases() and keys.MIG_PERMIT not in cluster.notes(node)
