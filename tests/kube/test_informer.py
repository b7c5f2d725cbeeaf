# SPDX-License-Identifier: Apache-2.0
"""An object, or all of a kind, followed whatever happens to the link."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from base.backoff import Backoff
from base.defects import Defects
from kube.api import LEASES, NODES, Object
from kube.api_errors import Busy, Expired, Unreachable
from kube.informer import LASTING_SECONDS, Informer, ObjectGone, WatchEvent
from tests.fakes.api import Call, FakeApi, FakeWatch
from tests.kube.clocks import Clock, highest, none
from tests.kube.listener import DEADLINE_SECONDS, Listener, word


@pytest.fixture
def api() -> FakeApi:
    """A server with the node ``n``, labelled 1."""
    api = FakeApi()
    api.server.create(NODES, node("n"))
    return api


@pytest.fixture
def listener(api: FakeApi) -> Iterator[Listener]:
    """Whoever follows ``n``, synced."""
    listener = Listener(api, NODES, name="n")
    assert listener.words(3) == ["WatchConnected", "seen n 1", "CacheSynced"]
    yield listener
    listener.informer.close()


def node(name: str, a: str = "1") -> Object:
    """A node with one label."""
    return {"metadata": {"name": name, "labels": {"a": a}}}


def label(api: FakeApi, name: str, a: str) -> None:
    """Somebody changes the label."""
    api.server.patch(NODES, name, {"metadata": {"labels": {"a": a}}})


def test_changes_are_reported_in_order(api: FakeApi, listener: Listener) -> None:
    label(api, "n", "2")
    label(api, "n", "3")
    api.server.delete(NODES, "n")
    assert listener.words(3) == ["seen n 2", "seen n 3", "gone n"]


def test_others_are_not_reported(api: FakeApi, listener: Listener) -> None:
    api.server.create(NODES, node("other"))
    label(api, "n", "2")
    assert listener.words(1) == ["seen n 2"]


def test_that_an_object_is_not_there_is_known_at_once() -> None:
    listener = Listener(FakeApi(), NODES, name="n")
    assert listener.words(2) == ["WatchConnected", "CacheSynced"]
    listener.informer.close()


def test_no_watch_is_opened_before_its_time(api: FakeApi) -> None:
    waits = [0.01, 0.01, 0.0]
    left: list[int] = []
    api.before("watch", lambda _: left.append(len(waits)), times=1)
    informer = Informer(api, NODES, lambda _: informer.close(), name="n")
    informer.run(lambda: waits.pop(0))
    assert left == [0]


def test_one_that_is_closed_before_its_time_opens_none(api: FakeApi) -> None:
    informer = Informer(api, NODES, lambda _: None, name="n")
    thread = threading.Thread(target=informer.run, args=(lambda: 3600.0,))
    thread.start()
    informer.close()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert api.calls == []


def test_a_watch_whose_time_is_up_is_continued_where_it_ended(
    api: FakeApi, listener: Listener
) -> None:
    api.before("watch", lambda _: label(api, "n", "2"), times=1)
    api.end_watches()
    assert listener.words(1) == ["seen n 2"]
    assert api.calls[-1].resource_version is not None


def test_a_bookmark_moves_the_start_of_the_next_watch(api: FakeApi, listener: Listener) -> None:
    api.server.create(NODES, node("other"))
    api.bookmark()
    api.server.forget_history()
    api.end_watches()
    label(api, "n", "2")
    assert listener.words(1) == ["seen n 2"]


def test_what_happened_out_of_sight_is_found_when_the_version_is_too_old(
    api: FakeApi, listener: Listener
) -> None:
    def meanwhile(_: Call) -> None:
        label(api, "n", "2")
        api.server.forget_history()

    api.before("watch", meanwhile, times=1)
    api.end_watches()
    assert listener.words(2) == ["seen n 2", "CacheSynced"]


def test_a_deletion_out_of_sight_is_found_too(api: FakeApi, listener: Listener) -> None:
    def meanwhile(_: Call) -> None:
        api.server.delete(NODES, "n")
        api.server.create(NODES, node("other"))
        api.server.forget_history()

    api.before("watch", meanwhile, times=1)
    api.end_watches()
    assert listener.words(2) == ["gone n", "CacheSynced"]


@pytest.mark.parametrize("in_sight", [True, False])
def test_an_object_made_anew_under_its_name_is_another(
    api: FakeApi, listener: Listener, in_sight: bool
) -> None:
    def anew(_: Call | None = None) -> None:
        api.server.delete(NODES, "n")
        api.server.create(NODES, node("n", a="2"))
        api.server.forget_history()

    if in_sight:
        anew()
    else:
        api.before("watch", anew, times=1)
        api.end_watches()
    assert listener.words(2) == ["gone n", "seen n 2"]


def test_a_broken_link_is_reported_and_so_is_its_return(api: FakeApi, listener: Listener) -> None:
    api.fail("watch", Unreachable("away"), times=2)
    api.break_watches(Unreachable("reset"))
    label(api, "n", "2")
    assert listener.words(5) == [
        "down reset",
        "down away",
        "down away",
        "WatchConnected",
        "seen n 2",
    ]


class BreaksAmid(FakeApi):
    """The first watch breaks after its first object."""

    def watch(self, *arguments: Any, **options: Any) -> FakeWatch:
        """See :class:`kube.api.Api`."""
        watch = super().watch(*arguments, **options)
        if len(self.calls) == 1:
            watch.end(Unreachable("reset"), keep=1)
        return watch


def test_a_first_watch_that_breaks_amid_what_exists_begins_again() -> None:
    """A version from amid the first objects would skip the others for ever."""
    api = BreaksAmid()
    for name in ("x", "y"):
        api.server.create(NODES, node(name))
    listener = Listener(api, NODES)
    assert listener.words(7) == [
        "WatchConnected",
        "seen x 1",
        "down reset",
        "WatchConnected",
        "seen x 1",
        "seen y 1",
        "CacheSynced",
    ]
    listener.informer.close()


def test_all_of_a_namespace_are_followed() -> None:
    api = FakeApi()
    for namespace in ("default", "kube-system"):
        api.server.create(LEASES, node("x"), namespace)
    api.server.create(LEASES, node("y"), "default")
    listener = Listener(api, LEASES, namespace="default")
    assert listener.words(4) == ["WatchConnected", "seen x 1", "seen y 1", "CacheSynced"]
    listener.informer.close()


def test_objects_of_one_name_in_two_namespaces_are_two() -> None:
    api = FakeApi()
    for namespace in ("default", "kube-system"):
        api.server.create(LEASES, node("x"), namespace)
    listener = Listener(api, LEASES)
    assert listener.words(4) == ["WatchConnected", "seen x 1", "seen x 1", "CacheSynced"]

    api.server.delete(LEASES, "x", "kube-system")

    gone = listener.next()
    assert isinstance(gone, ObjectGone)
    assert (gone.namespace, gone.name) == ("kube-system", "x")
    listener.informer.close()


class Spy(Backoff):
    """Nobody waits, and ``waits`` are what it would have been; closes after so many."""

    def __init__(self, count: int) -> None:
        super().__init__(uniform=highest)
        self.waits: list[float] = []
        self.count = count
        self.informer: Informer | None = None

    def failed(self, asked_seconds: float | None = None) -> float:
        """See :class:`Backoff`."""
        self.waits.append(super().failed(asked_seconds))
        if len(self.waits) == self.count and self.informer:
            self.informer.close()
        return 0.0


def spied(api: FakeApi, count: int, clock: Clock | None = None) -> list[float]:
    """The first waits of whoever follows ``n``."""
    spy = Spy(count)
    spy.informer = Informer(
        api, NODES, lambda _: None, name="n", backoff=spy, clock=clock or Clock(), uniform=none
    )
    spy.informer.run()
    return spy.waits


def test_waits_are_what_the_server_asked_for_and_jitter(api: FakeApi) -> None:
    api.fail("watch", Busy("429", retry_after_seconds=9))
    api.fail("watch", Unreachable("away"))
    assert spied(api, 2) == [9 + 1, 2]


def test_without_a_backoff_waits_are_drawn_by_the_informer_s_own_chance(api: FakeApi) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        informer.close()
        return 0.0

    informer = Informer(api, NODES, lambda _: None, name="n", uniform=uniform)
    api.fail("watch", Unreachable("away"))
    informer.run()
    assert drawn == [(0, 1)]


@pytest.mark.parametrize(
    ("open_seconds", "waits"),
    [(LASTING_SECONDS, [1, 2, 4, 1]), (LASTING_SECONDS - 1, [1, 2, 4, 8])],
)
def test_a_watch_that_has_lasted_makes_waits_short_again(
    api: FakeApi, open_seconds: float, waits: list[float]
) -> None:
    clock = Clock()
    api.fail("watch", Unreachable("away"), times=3)

    def pass_time(_: Call) -> None:
        clock.now += open_seconds
        api.end_watches()

    api.after("watch", pass_time)
    assert spied(api, 4, clock) == waits


def test_a_watch_that_breaks_amid_the_objects_has_not_worked_however_long_that_took(
    api: FakeApi,
) -> None:
    clock = Clock()

    class BreaksLate(FakeApi):
        def watch(self, *arguments: Any, **options: Any) -> FakeWatch:
            watch = super().watch(*arguments, **options)
            watch.end(None, keep=1)
            clock.now += LASTING_SECONDS
            return watch

    assert spied(BreaksLate(server=api.server), 3, clock) == [1, 2, 4]


def test_watches_that_end_without_a_word_are_asked_for_less_and_less(api: FakeApi) -> None:
    class Silent(FakeApi):
        def watch(self, *arguments: Any, **options: Any) -> FakeWatch:
            watch = super().watch(*arguments, **options)
            watch.end(None, keep=0)
            return watch

    assert spied(Silent(server=api.server), 4) == [1, 2, 4, 8]


def test_after_a_version_that_is_too_old_a_fleet_spreads_over_seconds(api: FakeApi) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.0

    informer = Informer(
        api, NODES, lambda _: None, name="n", backoff=Backoff(uniform=none), uniform=uniform
    )
    api.after("watch", lambda _: api.break_watches(Expired("too old")), times=1)
    api.before("watch", lambda _: informer.close() if len(api.calls) > 1 else None)
    informer.run()
    assert drawn == [(1.0, 5.0)]


def test_what_is_not_to_be_kept_is_passed_over_and_gone_where_it_was_reported() -> None:
    api = FakeApi()
    for name, a in (("x", "1"), ("y", "0")):
        api.server.create(NODES, node(name, a))
    heard: queue.Queue[str] = queue.Queue()
    informer = Informer(
        api,
        NODES,
        lambda event: heard.put(word(event)),
        keep=lambda thing: thing["metadata"]["labels"]["a"] != "0",
        backoff=Backoff(uniform=none),
        uniform=none,
    )
    threading.Thread(target=informer.run, daemon=True).start()
    words = [heard.get(timeout=DEADLINE_SECONDS) for _ in range(3)]
    label(api, "x", "0")
    label(api, "x", "00")
    label(api, "y", "2")
    words += [heard.get(timeout=DEADLINE_SECONDS) for _ in range(3)]
    informer.close()

    assert words == ["WatchConnected", "seen x 1", "CacheSynced", "gone x", "seen x 00", "seen y 2"]


def test_what_is_not_to_be_kept_when_all_is_reported_anew_is_gone() -> None:
    api = FakeApi()
    api.server.create(NODES, node("x"))
    heard: queue.Queue[str] = queue.Queue()
    informer = Informer(
        api,
        NODES,
        lambda event: heard.put(word(event)),
        keep=lambda thing: thing["metadata"]["labels"]["a"] == "1",
        backoff=Backoff(uniform=none),
        uniform=none,
    )
    threading.Thread(target=informer.run, daemon=True).start()
    for _ in range(3):
        heard.get(timeout=DEADLINE_SECONDS)

    def meanwhile(_: Call) -> None:
        label(api, "x", "0")
        api.server.forget_history()

    api.before("watch", meanwhile, times=1)
    api.end_watches()
    words = [heard.get(timeout=DEADLINE_SECONDS) for _ in range(2)]
    informer.close()

    assert words == ["gone x", "CacheSynced"]


def test_how_an_informer_narrows_its_watch_reaches_the_server(api: FakeApi) -> None:
    fields = {"spec.unschedulable": "true"}
    informer = Informer(api, NODES, lambda _: None, fields=fields, metadata_only=True)
    api.after("watch", lambda _: informer.close())

    informer.run()

    assert (api.calls[-1].fields, api.calls[-1].metadata_only) == (fields, True)


def test_closing_ends_a_watch_in_which_nothing_happens(listener: Listener) -> None:
    listener.informer.close()
    listener.thread.join(1)
    assert not listener.thread.is_alive()


def test_closing_ends_a_long_wait() -> None:
    api = FakeApi()
    api.fail("watch", Busy("429", retry_after_seconds=3600))
    listener = Listener(api, NODES, name="n")
    assert listener.words(1) == ["down 429"]
    listener.informer.close()
    listener.thread.join(1)
    assert not listener.thread.is_alive()


def test_nothing_is_reported_once_it_is_closed(api: FakeApi) -> None:
    reported: list[str] = []

    def on_event(event: WatchEvent) -> None:
        reported.append(word(event))
        if reported[-1] == "CacheSynced":
            api.server.delete(NODES, "n")
            api.server.create(NODES, node("n", a="2"))
            api.break_watches(Expired("too old resource version"), keep=1)
        if reported[-1] == "gone n":
            informer.close()

    informer = Informer(api, NODES, on_event, name="n", backoff=Backoff(uniform=none), uniform=none)
    informer.run()
    assert reported == ["WatchConnected", "seen n 1", "CacheSynced", "gone n"]


def followed(
    api: FakeApi, words: queue.Queue[str], keep: Callable[[Object], bool], defects: Defects
) -> Informer:
    """An informer of Node n in a thread of its own, whose events come as words."""
    informer = Informer(
        api,
        NODES,
        lambda event: words.put(word(event)),
        name="n",
        keep=keep,
        backoff=Backoff(uniform=none),
        defects=defects,
    )
    threading.Thread(target=informer.run, daemon=True).start()
    return informer


def test_an_object_that_cannot_be_read_does_not_end_the_following(api: FakeApi) -> None:
    words: queue.Queue[str] = queue.Queue()
    met = 0

    def count() -> None:
        nonlocal met
        met += 1

    def keep(_object: Object) -> bool:
        if met == 0:
            raise KeyError("spec")
        return True

    informer = followed(api, words, keep, Defects(count))
    assert [words.get(timeout=DEADLINE_SECONDS) for _ in range(5)] == [
        "WatchConnected",
        "down watch nodes: KeyError('spec') at what came",
        "WatchConnected",
        "seen n 1",
        "CacheSynced",
    ]
    informer.close()
    assert met == 1


def test_an_object_that_cannot_be_read_is_taken_once_it_was_mended(api: FakeApi) -> None:
    """The watch does not start over at the form that it cannot read."""
    words: queue.Queue[str] = queue.Queue()
    broken = threading.Event()
    mended = threading.Event()

    def keep(seen: Object) -> bool:
        if seen["metadata"]["labels"]["a"] == "broken":
            broken.set()
            mended.wait()
            raise KeyError("spec")
        return True

    informer = followed(api, words, keep, Defects())
    assert [words.get(timeout=DEADLINE_SECONDS) for _ in range(3)][-1] == "CacheSynced"
    label(api, "n", "broken")
    assert broken.wait(DEADLINE_SECONDS)
    label(api, "n", "mended")
    mended.set()
    assert [words.get(timeout=DEADLINE_SECONDS) for _ in range(3)] == [
        "down watch nodes: KeyError('spec') at what came",
        "WatchConnected",
        "seen n mended",
    ]
    informer.close()


def test_a_listener_that_fails_gets_the_next_event_all_the_same(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    heard: queue.Queue[str] = queue.Queue()

    def on_event(event: WatchEvent) -> None:
        if word(event) == "seen n 1":
            raise RuntimeError("no")
        heard.put(word(event))

    informer = Informer(api, NODES, on_event, name="n")
    threading.Thread(target=informer.run, daemon=True).start()
    assert [heard.get(timeout=DEADLINE_SECONDS) for _ in range(2)] == [
        "WatchConnected",
        "CacheSynced",
    ]
    informer.close()
    assert "internal error" in caplog.text
