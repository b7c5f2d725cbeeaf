# SPDX-License-Identifier: Apache-2.0
"""Who holds a Lease, judged by the reader's own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec

from kube import lease
from kube.api import LEASES, Object
from tests.fakes.api import FakeApi

AT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
NODE: Object = {"metadata": {"name": "node-a", "uid": "uid-a"}}


def made(holder: str = "pod-a", at: datetime = AT) -> Object:
    """A Lease of 180 s as the server gives it."""
    body = lease.lease_object("some", holder=holder, duration_seconds=180, wall_time=at)
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


def test_a_lease_that_is_read_once_lapses_by_its_own_duration() -> None:
    """And by wall clocks, as there is no other reading to compare with."""
    spec = lease.Lease.from_object(made()).spec
    renewed = AT.timestamp()

    assert spec.renewed_at == renewed
    assert [spec.has_lapsed(renewed + seconds) for seconds in (0, 180, 181)] == [False, False, True]
    longer = msgspec.structs.replace(spec, lease_duration_seconds=600)
    assert [longer.has_lapsed(renewed + seconds) for seconds in (599, 601)] == [False, True]
    assert not msgspec.structs.replace(spec, lease_duration_seconds=0).has_lapsed(renewed + 9e9)
    assert msgspec.structs.replace(spec, renew_time="").has_lapsed(renewed)


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
    body = lease.lease_object("some", holder="pod-a", duration_seconds=180, wall_time=AT, node=NODE)
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-a"}
    ]


def test_every_patch_is_of_the_version_that_was_read() -> None:
    there = made()
    version = there["metadata"]["resourceVersion"]
    taken = lease.takeover(there, holder="pod-b", duration_seconds=60, wall_time=AT)
    for patch in (
        lease.renewal(there, wall_time=AT),
        taken,
        lease.release_patch(there, wall_time=AT),
    ):
        assert patch["metadata"] == {"resourceVersion": version}


def test_a_renewal_carries_annotations_and_leaves_the_holder_alone() -> None:
    patch = lease.renewal(made(), wall_time=AT, annotations={"gpuscape.io/state": "{}"})
    assert patch["metadata"]["annotations"] == {"gpuscape.io/state": "{}"}
    assert patch["spec"] == {"renewTime": lease.micro_time(AT)}


def test_a_new_lease_names_its_holder_for_its_duration_with_no_change_of_hands() -> None:
    """The whole body, in the field names of coordination.k8s.io/v1."""
    body = lease.lease_object(
        "some", holder="pod-a", duration_seconds=180, wall_time=AT, annotations={"a": "b"}
    )
    assert body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "some", "annotations": {"a": "b"}},
        "spec": {
            "holderIdentity": "pod-a",
            "leaseDurationSeconds": 180,
            "acquireTime": "2026-11-20T08:30:00.000000Z",
            "renewTime": "2026-11-20T08:30:00.000000Z",
            "leaseTransitions": 0,
        },
    }


def test_a_takeover_writes_all_of_the_new_holder_and_counts_the_change_of_hands() -> None:
    there = {"metadata": {"resourceVersion": "7"}, "spec": {"leaseTransitions": 4}}
    moment = "2026-11-20T08:30:00.000000Z"
    assert lease.takeover(
        there, holder="pod-b", duration_seconds=60, wall_time=AT, annotations={"a": None}
    ) == {
        "metadata": {"resourceVersion": "7", "annotations": {"a": None}},
        "spec": {
            "holderIdentity": "pod-b",
            "leaseDurationSeconds": 60,
            "acquireTime": moment,
            "renewTime": moment,
            "leaseTransitions": 5,
        },
    }


def test_a_release_leaves_nobody_as_the_holder() -> None:
    patch = lease.release_patch(made(), wall_time=AT)
    assert patch["spec"] == {"holderIdentity": "", "renewTime": "2026-11-20T08:30:00.000000Z"}


def test_each_of_holder_time_transitions_and_uid_is_a_sign_of_life() -> None:
    there = made()
    before = lease.observe(None, there, 1000)
    spec = there["spec"]
    changed = [
        {**there, "metadata": {**there["metadata"], "uid": "another"}},
        *(
            {**there, "spec": {**spec, field: value}}
            for field, value in (
                ("holderIdentity", "pod-b"),
                ("renewTime", lease.micro_time(AT + timedelta(seconds=1))),
                ("leaseTransitions", 1),
            )
        ),
    ]
    assert [lease.observe(before, each, 1100).changed_at for each in changed] == [1100] * 4
    assert before.duration_seconds == 180
