# SPDX-License-Identifier: Apache-2.0
"""Events help people and cost little."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from base.backoff import Backoff
from kube.api import EVENTS, Object
from kube.api_errors import ApiError, Busy, Forbidden, Unauthorized, Unreachable
from kube.events import EventBudget, Recorder
from tests.fakes.api import FakeApi
from tests.kube.clocks import Clock, highest

NODE = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-a"}
BUDGET = EventBudget(burst=25, refill_seconds=300, repeat_seconds=300)
NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)


def recorder(
    api: FakeApi,
    clock: Clock,
    now: datetime = NOW,
    dropped: Callable[[], None] = lambda: None,
) -> Recorder:
    """That of a pod."""
    return Recorder(
        api,
        controller="gpuscape-agent",
        instance="pod-a",
        budget=BUDGET,
        dropped=dropped,
        backoff=Backoff(uniform=highest),
        clock=clock,
        now=lambda: now,
    )


def say(recorder: Recorder, reason: str = "GpuLost", note: str = "One GPU is lost.") -> None:
    """Record one about the node."""
    recorder.record(NODE, reason=reason, action="Observe", note=note, warning=True)


def events(api: FakeApi) -> list[Object]:
    """All there are."""
    return api.server.objects(EVENTS)


def test_an_event_arrives_as_people_read_it() -> None:
    api = FakeApi()
    events_of_pod = recorder(api, Clock())
    say(events_of_pod)
    assert api.calls == []
    events_of_pod.flush()

    (event,) = events(api)
    assert event["metadata"]["name"].startswith("node-a.")
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == NODE
    assert (event["reason"], event["type"]) == ("GpuLost", "Warning")
    assert event["note"] == "One GPU is lost."
    assert (event["reportingController"], event["reportingInstance"]) == ("gpuscape-agent", "pod-a")
    assert event["eventTime"] == "2026-11-20T08:00:00.000000Z"


def test_each_event_that_is_dropped_is_reported_at_once() -> None:
    """Over the budget, and refused by the server."""
    api, drops = FakeApi(), []
    events_of_pod = recorder(api, Clock(), dropped=lambda: drops.append(1))
    api.fail("create", Forbidden("no right"))
    for _ in range(3):
        say(events_of_pod)
    assert len(drops) == 2
    events_of_pod.flush()
    assert len(drops) == events_of_pod.dropped == 3


def test_a_reason_is_told_once_in_five_minutes() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    say(events_of_pod)
    say(events_of_pod, note="Two GPUs are lost.")
    say(events_of_pod, "Other")
    clock.now += 299
    say(events_of_pod)
    events_of_pod.flush()

    assert sorted(event["reason"] for event in events(api)) == ["GpuLost", "Other"]
    assert events_of_pod.dropped == 2


@pytest.mark.parametrize("differs", ["kind", "name", "uid"])
def test_a_reason_told_of_one_object_may_be_told_of_another_at_once(differs: str) -> None:
    api = FakeApi()
    events_of_pod = recorder(api, Clock())
    for regarding in (NODE, NODE | {differs: "other"}):
        events_of_pod.record(regarding, reason="GpuLost", action="Observe", note="n")
    events_of_pod.flush()

    assert len(events(api)) == 2
    assert events_of_pod.dropped == 0


def test_the_same_again_is_counted_in_the_series() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    for _ in range(3):
        say(events_of_pod)
        events_of_pod.flush()
        clock.now += 300

    (event,) = events(api)
    assert event["series"] == {"count": 3, "lastObservedTime": "2026-11-20T08:00:00.000000Z"}
    assert [call.verb for call in api.calls] == ["create", "patch", "patch"]


def test_a_restart_makes_no_second_event() -> None:
    api = FakeApi()
    for _ in range(3):
        fresh = recorder(api, Clock())
        say(fresh)
        fresh.flush()

    (event,) = events(api)
    assert event["series"]["count"] == 3


def test_another_note_is_another_event() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    say(events_of_pod, note="One GPU is lost.")
    clock.now += 300
    say(events_of_pod, note="Two GPUs are lost.")
    events_of_pod.flush()
    assert len(events(api)) == 2


def test_what_the_cluster_forgot_is_made_anew() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    say(events_of_pod)
    events_of_pod.flush()
    api.server.delete(EVENTS, events(api)[0]["metadata"]["name"], "default")
    clock.now += 300
    say(events_of_pod)
    events_of_pod.flush()

    (event,) = events(api)
    assert "series" not in event


def test_a_storm_of_reasons_ends_at_25() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    for at in range(40):
        say(events_of_pod, f"Reason{at}")
        events_of_pod.flush()
    assert len(events(api)) == 25
    assert events_of_pod.dropped == 15

    clock.now += 300
    say(events_of_pod, "Later")
    say(events_of_pod, "TooSoon")
    events_of_pod.flush()
    assert len(events(api)) == 26


@pytest.mark.parametrize(
    "error", [Unreachable("away"), Busy("429", retry_after_seconds=30), Unauthorized("401")]
)
def test_while_the_server_is_away_events_wait_and_are_tried_with_backoff(error: ApiError) -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    api.fail("create", error)
    say(events_of_pod)
    for _ in range(100):
        events_of_pod.flush()
    assert len(api.calls) == 1

    clock.now += 31
    events_of_pod.flush()
    assert len(events(api)) == 1
    assert events_of_pod.dropped == 0


def test_an_outage_keeps_no_more_than_a_burst() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    api.fail("create", Unreachable("away"), times=None)
    for _ in range(200):
        say(events_of_pod)
        events_of_pod.flush()
        clock.now += 300
    api.heal()
    clock.now += 60
    events_of_pod.flush()
    assert events_of_pod.dropped == 175


def test_an_event_that_finds_no_room_costs_the_next_one_nothing() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    for number in range(BUDGET.burst):
        say(events_of_pod, reason=f"Reason{number}")
    clock.now += BUDGET.refill_seconds  # one more would be within the budget, but all those wait
    say(events_of_pod, reason="WithoutRoom")
    assert events_of_pod.dropped == 1
    events_of_pod.flush()
    say(events_of_pod, reason="Next")
    assert events_of_pod.dropped == 1


def test_a_lost_reply_makes_no_second_event() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    api.lose_reply("create")
    say(events_of_pod)
    events_of_pod.flush()
    clock.now += 60
    events_of_pod.flush()
    assert len(events(api)) == 1


def test_what_is_refused_is_dropped_and_the_next_goes_on() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    api.fail("create", Forbidden("403"))
    say(events_of_pod, "First")
    say(events_of_pod, "Second")
    events_of_pod.flush()
    assert [event["reason"] for event in events(api)] == ["Second"]
    assert events_of_pod.dropped == 1


def test_a_long_note_is_cut_between_characters() -> None:
    api = FakeApi()
    events_of_pod = recorder(api, Clock())
    say(events_of_pod, note="ü" * 1000)
    events_of_pod.flush()
    assert events(api)[0]["note"] == "ü" * 512


def test_a_long_name_still_makes_a_legal_one() -> None:
    api = FakeApi()
    events_of_pod = recorder(api, Clock())
    subject = {**NODE, "name": "n" * 199 + "." + "m" * 50}
    events_of_pod.record(subject, reason="Tried", action="Try", note="n")
    events_of_pod.flush()
    (event,) = events(api)
    assert event["type"] == "Normal"
    assert len(event["metadata"]["name"]) <= 253


def test_only_the_last_hundred_are_remembered_and_older_ones_still_counted() -> None:
    api, clock = FakeApi(), Clock()
    events_of_pod = recorder(api, clock)
    for at in [*range(101), 100, 0]:
        say(events_of_pod, f"Reason{at}")
        events_of_pod.flush()
        clock.now += 300

    verbs = [call.verb for call in api.calls[101:]]
    assert verbs == ["patch", "create", "patch", "patch"]
    counts = {event["reason"]: event.get("series", {}).get("count") for event in events(api)}
    assert (counts["Reason0"], counts["Reason100"], counts["Reason50"]) == (2, 2, None)


POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "p", "uid": "uid-p"}


def test_an_event_stands_in_the_namespace_of_its_object() -> None:
    api = FakeApi()
    api.server.add_namespace("team")
    events_of_pod = recorder(api, Clock())
    events_of_pod.record(POD, reason="Tried", action="Try", note="n")
    events_of_pod.flush()

    assert [event["metadata"]["namespace"] for event in events(api)] == ["team"]


def test_an_event_with_a_name_of_its_own_is_made_once_and_never_counted_up() -> None:
    api, clock = FakeApi(), Clock()
    api.server.add_namespace("team")
    replicas = [recorder(api, clock), recorder(api, clock)]
    for replica in (*replicas, replicas[0]):
        replica.record(POD, reason="Tried", action="Try", note="n", name="gpuscape-uid-p")
        replica.flush()
        clock.now += 300

    (event,) = events(api)
    assert event["metadata"]["name"] == "gpuscape-uid-p"
    assert "series" not in event
    assert [replica.dropped for replica in replicas] == [0, 0]
    assert [call.verb for call in api.calls] == ["create"] * 3


def test_without_a_bound_on_repetitions_only_the_burst_counts() -> None:
    api = FakeApi()
    budget = EventBudget(burst=3, refill_seconds=300)
    events_of_pod = Recorder(
        api, controller="c", instance="i", budget=budget, clock=Clock(), now=lambda: NOW
    )
    for _ in range(4):
        say(events_of_pod)
        events_of_pod.flush()

    (event,) = events(api)
    assert (event["series"]["count"], events_of_pod.dropped) == (3, 1)


def test_an_event_has_no_text_that_a_terminal_obeys() -> None:
    """kubectl may print it as it is; half of a character must not stop the recorder."""
    api = FakeApi()
    recorded = recorder(api, Clock())
    say(recorded, reason="Gpu\x1bLost", note="asks for \x1b]52;c;aGk=\x07\u202e\n\ud800é")
    recorded.flush()

    (event,) = events(api)
    assert event["reason"] == "Gpu\\x1bLost"
    assert event["note"] == "asks for \\x1b]52;c;aGk=\\x07\\u202e\\n\\ud800é"
