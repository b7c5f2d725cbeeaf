# SPDX-License-Identifier: Apache-2.0
"""Permits and rollback records in their forms before 0.1.0: nobody acts on them, and they go."""

from __future__ import annotations

from datetime import UTC, datetime

from api import keys, names
from fleet import slot_lease
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import RolloutSettings
from kube.api import LEASES
from tests.fleet.simulated_fleet import START, Cluster
from tests.fleet.test_rollouts import assert_clean

TERMS = RolloutSettings(slots=1, end_seconds=1000.0)
GRANT = "gpuscape.io/mig-grant"
UNDO = "gpuscape.io/mig-undo"
GO = '{"v":1,"request":"00112233445566aa","phase":"go","cordoned":true}'
RECORD = '{"v":1,"node":"n0","uid":"u","request":"00112233445566aa"}'


def make_slot(cluster: Cluster, number: int, node: str) -> None:
    """A slot's Lease as a coordinator before 0.1.0 left it."""
    record = RollbackRecord(v=2, node=node, uid="u", request="0" * 16)
    body = slot_lease.new_lease(number, record, datetime.fromtimestamp(START, UTC))
    body["metadata"]["annotations"] = {UNDO: RECORD}
    cluster.people.create(LEASES, body, namespace=names.NAMESPACE)


def former_records(cluster: Cluster) -> set[str]:
    """Names of the Leases on which one stands."""
    return {
        lease["metadata"]["name"]
        for lease in cluster.server.objects(LEASES)
        if UNDO in (lease["metadata"].get("annotations") or {})
    }


def test_a_former_permit_is_removed_and_nobody_acts_on_it() -> None:
    cluster = Cluster(nodes=2, terms=TERMS)
    before = cluster.agents["n0"].layout
    cluster.edit("n0", {"metadata": {"annotations": {GRANT: GO}}})

    cluster.pass_until(lambda: GRANT not in cluster.notes("n0"), within=30)

    assert cluster.agents["n0"].layout == before
    assert_clean(cluster, "n0", "n1")


def test_a_former_permit_stays_while_a_change_is_open() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)
    cluster.wish("sevenths", "n0")
    cluster.pass_until(lambda: keys.MIG_PERMIT in cluster.notes("n0"), within=60)
    cluster.edit("n0", {"metadata": {"annotations": {GRANT: GO}}})
    cluster.agents["n0"].is_away = True

    cluster.pass_time(60)
    assert GRANT in cluster.notes("n0")

    cluster.agents["n0"].is_away = False
    cluster.pass_until(lambda: GRANT not in cluster.notes("n0"), within=600)
    assert cluster.agents["n0"].layout == "sevenths"
    assert_clean(cluster, "n0")


def test_a_slot_with_a_former_record_is_emptied_and_given_again() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)
    make_slot(cluster, 0, "n0")
    cluster.wish("sevenths", "n0")

    cluster.pass_until(lambda: cluster.agents["n0"].layout == "sevenths", within=600)
    cluster.pass_until(lambda: not cluster.open_leases(), within=300)

    assert not former_records(cluster)
    assert_clean(cluster, "n0")


def test_a_parked_former_record_stays_while_a_change_is_open_anywhere() -> None:
    """It names no node to those who do not read it."""
    cluster = Cluster(nodes=2, terms=TERMS)
    cluster.wish("sevenths", "n1")
    cluster.pass_until(lambda: keys.MIG_CORDON in cluster.notes("n1"), within=60)
    make_slot(cluster, slot_lease.PARKING, "n0")
    cluster.agents["n1"].is_away = True

    cluster.pass_time(60)
    assert former_records(cluster) == {"mig-slot-1000"}

    cluster.agents["n1"].is_away = False
    cluster.pass_until(lambda: not former_records(cluster), within=900)
    assert_clean(cluster, "n0", "n1")
