# SPDX-License-Identifier: Apache-2.0
"""A store that was put back to a backup: versions go back, and what is there now is what counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube.api import LEASES, NODES, Object
from kube.api_errors import Unreachable
from kube.lease import is_rolled_back, observe
from tests.fakes.api import FakeApi
from tests.fakes.server import Backup
from tests.kube.listener import Listener


def node(name: str, a: str) -> Object:
    return {"metadata": {"name": name, "labels": {"a": a}}}


def label(api: FakeApi, name: str, a: str) -> None:
    api.server.patch(NODES, name, {"metadata": {"labels": {"a": a}}})


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.server.create(NODES, node("n", "kept"))
    return api


@pytest.fixture
def backup(api: FakeApi) -> Backup:
    """One that is older than anything that happens in a test."""
    return api.server.backup()


@pytest.fixture
def listener(api: FakeApi, backup: Backup) -> Iterator[Listener]:
    """An informer of all Nodes, which has seen versions that the backup does not have."""
    del backup
    listener = Listener(api, NODES)
    assert listener.until("CacheSynced")[-1] == "CacheSynced"
    for a in ("2", "3", "4"):
        label(api, "n", a)
    api.server.create(NODES, node("new", "1"))
    assert listener.until("seen new")[-1] == "seen new 1"
    yield listener
    listener.informer.close()


def test_a_watch_that_was_lost_reads_the_store_as_it_was_put_back(
    api: FakeApi, backup: Backup, listener: Listener
) -> None:
    api.server.restore(backup)
    api.break_watches(Unreachable("reset"))

    assert listener.words(5) == [
        "down reset",
        "WatchConnected",
        "seen n kept",
        "gone new",
        "CacheSynced",
    ]
    label(api, "n", "after")
    assert listener.words(1) == ["seen n after"]


def test_an_informer_that_is_to_start_anew_does_though_its_watch_is_open(
    api: FakeApi, backup: Backup, listener: Listener
) -> None:
    api.server.restore(backup)
    label(api, "n", "after")  # at a version that the open watch has passed

    listener.informer.start_anew()

    assert listener.words(5) == [
        "down watch nodes: the server's store was put back to a backup",
        "WatchConnected",
        "seen n after",
        "gone new",
        "CacheSynced",
    ]


def test_an_informer_that_is_to_start_anew_between_two_watches_resumes_none(
    api: FakeApi, backup: Backup, listener: Listener
) -> None:
    def meanwhile(_: object) -> None:
        api.server.restore(backup)
        listener.informer.start_anew()

    api.before("watch", meanwhile, times=1)
    api.end_watches()

    assert listener.until("CacheSynced")[-3:] == ["seen n kept", "gone new", "CacheSynced"]
    assert api.calls[-1].resource_version is None


def lease(version: str, uid: str = "u") -> Object:
    return {"metadata": {"name": "l", "uid": uid, "resourceVersion": version}}


@pytest.mark.parametrize(
    ("before", "after", "proves"),
    [
        (None, lease("5"), False),
        (lease("5"), lease("5"), False),
        (lease("5"), lease("6"), False),
        (lease("10"), lease("9"), True),
        (lease("10"), lease("9", uid="made anew"), True),
        (lease("x"), lease("9"), False),
    ],
)
def test_an_answer_with_a_lower_version_than_the_one_before_proves_it(
    before: Object | None, after: Object, proves: bool
) -> None:
    seen = None if before is None else observe(None, before, 0.0)
    assert is_rolled_back(seen, after) is proves


def test_the_fake_server_gives_a_watch_from_a_later_version_nothing(
    api: FakeApi, backup: Backup
) -> None:
    """As kube-apiserver does: tests/kube/test_faults.py has the same on a real one."""
    for a in ("2", "3", "4"):
        label(api, "n", a)
    later = api.server.version
    api.server.restore(backup)
    watch = api.watch(NODES, resource_version=later)
    label(api, "n", "unseen")
    for a in ("6", "7", "8"):
        label(api, "n", a)
    watch.end(None)
    assert [change.object["metadata"]["labels"]["a"] for change in watch] == ["8"]
    assert api.server.objects(LEASES) == []
