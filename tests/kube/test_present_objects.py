# SPDX-License-Identifier: Apache-2.0
"""All objects of a kind are read, or it is said that they were not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube.api import NODES, PODS, Change, Watch
from kube.api_errors import Forbidden, Unreachable
from kube.present_objects import present_objects
from tests.fakes.api import FakeApi


class Short:
    """A watch that the server ends before its bookmark."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.closed = False

    def __iter__(self) -> Iterator[Change]:
        for change in self._watch:
            if change.type == "BOOKMARK":
                return
            yield change

    def close(self) -> None:
        self.closed = True
        self._watch.close()


def named(api: FakeApi, *nodes: str) -> None:
    for name in nodes:
        api.server.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": True}})


def test_all_that_are_there_are_read_and_the_watch_is_closed() -> None:
    api = FakeApi()
    named(api, "a", "b")
    found = {it["metadata"]["name"]: "spec" in it for it in present_objects(api, NODES)}
    assert found == {"a": True, "b": True}
    bare = {
        it["metadata"]["name"]: "spec" in it
        for it in present_objects(api, NODES, metadata_only=True)
    }
    assert bare == {"a": False, "b": False}
    assert list(present_objects(api, PODS, namespace="none")) == []
    assert api._watches == []


def test_an_answer_that_ends_early_is_no_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else pods that were not sent would count as gone, and their GPUs as idle."""
    api = FakeApi()
    named(api, "a", "b")
    short = Short(api.watch(NODES))
    monkeypatch.setattr(api, "watch", lambda *_, **__: short)
    with pytest.raises(Unreachable, match="list nodes: the server ended its answer too early"):
        list(present_objects(api, NODES))
    assert short.closed


def test_what_the_server_refuses_is_raised() -> None:
    api = FakeApi()
    api.fail("watch", Forbidden("watch nodes: forbidden"))
    with pytest.raises(Forbidden):
        list(present_objects(api, NODES))
