# SPDX-License-Identifier: Apache-2.0
"""Who holds a Lease, judged by the reader's own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from kube import lease
from kube.api import LEASES, Object
from tests.fakes.api import FakeApi

AT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
NODE: Object = {"metadata": {"name": "node-a", "uid": "uid-a"}}


def made(holder: str = "pod-a", at: datetime = AT) -> Object:
    """A Lease of 180 s as the server gives it."""
    body = lease.new("some", holder=holder, duration_seconds=180, at=at)
    return FakeApi().create(LEASES, body, namespace="default")


def test_a_lease_that_changes_is_alive_however_old_its_times_are() -> None:
    before = lease.observe(None, made(at=AT - timedelta(days=400)), 1000)
    after = lease.observe(before, made(at=AT - timedelta(days=399)), 1170)
    assert not before.is_stale(1180)
    assert not after.is_stale(1350)
    assert after.is_stale(1351)


def test_a_lease_without_a_change_goes_stale_however_new_its_times_are() -> None:
    before = lease.observe(None, made(at=AT + timedelta(days=400)), 1000)
    again = lease.observe(before, made(at=AT + timedelta(days=400)), 1100)
    assert again.changed_at == 1000
    assert again.is_stale(1180.1)


def test_a_lease_that_nobody_holds_is_free_at_once() -> None:
    assert lease.observe(None, made(holder=""), 1000).is_stale(1000)
    assert lease.observe(None, {"metadata": {}}, 1000).is_stale(1000)


def test_a_new_holder_is_a_change() -> None:
    before = lease.observe(None, made("pod-a"), 1000)
    after = lease.observe(before, made("pod-b"), 1500)
    assert (after.holder, after.changed_at) == ("pod-b", 1500)


def test_times_are_utc_with_six_digits() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert lease.micro_time(datetime(2026, 11, 20, 17, 30, tzinfo=tokyo)) == (
        "2026-11-20T08:30:00.000000Z"
    )
    assert lease.micro_time(AT.replace(microsecond=5)) == "2026-11-20T08:30:00.000005Z"


def test_the_node_owns_its_lease_without_blocking_its_deletion() -> None:
    body = lease.new("some", holder="pod-a", duration_seconds=180, at=AT, node=NODE)
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-a"}
    ]


def test_every_patch_is_of_the_version_that_was_read() -> None:
    there = made()
    version = there["metadata"]["resourceVersion"]
    taken = lease.takeover(there, holder="pod-b", duration_seconds=60, at=AT)
    for patch in (lease.renewal(there, at=AT), taken, lease.release(there, at=AT)):
        assert patch["metadata"] == {"resourceVersion": version}


def test_a_renewal_carries_annotations_and_leaves_the_holder_alone() -> None:
    patch = lease.renewal(made(), at=AT, annotations={"gpuscape.io/state": "{}"})
    assert patch["metadata"]["annotations"] == {"gpuscape.io/state": "{}"}
    assert patch["spec"] == {"renewTime": lease.micro_time(AT)}
