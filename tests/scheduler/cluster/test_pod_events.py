# SPDX-License-Identifier: Apache-2.0
"""The one Event about a pod that wished for linked GPUs and has others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api import names
from api.gpu_request import Link, gpu_request
from base.backoff import Backoff
from kube.api import EVENTS, NODES
from kube.api_errors import ApiError, Busy, Forbidden, NotFound, Unreachable
from kube.events import Recorder
from scheduler.cluster.pod_events import BUDGET, record_unlinked
from scheduler.cluster.predictions import PredictionCheck
from scheduler.pod_request import PodRequest
from tests.fakes.api import FakeApi
from tests.kube.clocks import highest
from tests.scheduler.fleets import Clock

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


def landing(name: str = "p", uid: str = "uid-p") -> PredictionCheck:
    """A pod on GPUs 1 and 4 of node a."""
    return PredictionCheck(
        ask=PodRequest(
            namespace="default", name=name, uid=uid, wish=gpu_request(2, link=Link.NVLINK)
        ),
        node="a",
        gen="0" * 10,
        predicted={},
        actual=0b10010,
    )


class Reporter:
    """One replica."""

    def __init__(self, api: FakeApi | None = None) -> None:
        self.api = api or FakeApi(manager=names.SCHEDULER)
        self.clock = Clock()
        self.events = Recorder(
            self.api,
            controller=names.SCHEDULER,
            budget=BUDGET,
            instance="gpuscape-scheduler-0",
            backoff=Backoff(uniform=highest),
            clock=self.clock,
            now=lambda: NOW,
        )

    @property
    def written(self) -> list[str]:
        """Names of all Events in the cluster."""
        return [it["metadata"]["name"] for it in self.api.server.objects(EVENTS)]


def test_the_event_is_about_the_pod_and_says_what_it_was_given() -> None:
    reporter = Reporter()

    record_unlinked(reporter.events, landing())
    reporter.events.flush()

    (event,) = reporter.api.server.objects(EVENTS)
    assert event["metadata"]["name"] == "gpuscape-uid-p"
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
    }
    assert (event["type"], event["reportingController"]) == ("Warning", "gpuscape-scheduler")
    assert (event["reason"], event["action"]) == ("GpusNotLinked", "Allocating")
    assert event["note"] == (
        "The pod requests GPUs joined by NVLink (gpuscape.io/link=nvlink), but got GPUs 1, 4 of a,"
        " which are not all joined by it. It runs, but slower. To try again, delete it."
    )


def test_nothing_is_sent_before_the_flush_and_nothing_twice() -> None:
    reporter = Reporter()

    record_unlinked(reporter.events, landing())
    before = len(reporter.api.calls)
    reporter.events.flush()
    reporter.events.flush()

    assert (before, len(reporter.api.calls)) == (0, 1)


def test_of_many_replicas_and_restarts_there_is_one_event() -> None:
    first = Reporter()
    for reporter in (first, Reporter(first.api), Reporter(first.api)):
        record_unlinked(reporter.events, landing())
        reporter.events.flush()
        assert reporter.events.dropped == 0

    assert first.written == ["gpuscape-uid-p"]
    assert [call.verb for call in first.api.calls] == ["create"] * 3


@pytest.mark.parametrize("error", [Unreachable("away"), Busy("429", retry_after_seconds=0)])
def test_what_the_server_cannot_take_now_is_sent_later(error: ApiError) -> None:
    reporter = Reporter()
    reporter.api.fail("create", error)
    record_unlinked(reporter.events, landing())

    reporter.events.flush()
    reporter.events.flush()
    too_early = list(reporter.written)
    reporter.clock.now += 1
    reporter.events.flush()

    assert (too_early, reporter.written) == ([], ["gpuscape-uid-p"])


def test_an_answer_that_was_lost_does_no_harm() -> None:
    reporter = Reporter()
    reporter.api.lose_reply("create")
    record_unlinked(reporter.events, landing())

    reporter.events.flush()
    reporter.clock.now += 1
    reporter.events.flush()

    assert (reporter.written, reporter.events.dropped) == (["gpuscape-uid-p"], 0)


@pytest.mark.parametrize("error", [Forbidden("403"), NotFound("namespace gone")])
def test_what_the_server_will_never_take_is_counted_and_the_next_one_sent(error: ApiError) -> None:
    reporter = Reporter()
    reporter.api.fail("create", error)
    record_unlinked(reporter.events, landing())
    record_unlinked(reporter.events, landing("q", "uid-q"))

    reporter.events.flush()

    assert (reporter.written, reporter.events.dropped) == (["gpuscape-uid-q"], 1)


def test_a_flood_is_cut_and_counted_and_the_budget_grows_back() -> None:
    reporter = Reporter()
    for at in range(BUDGET.burst + 5):
        record_unlinked(reporter.events, landing(f"p{at}", f"uid-{at}"))
        reporter.events.flush()
    flood = len(reporter.written)

    reporter.clock.now += BUDGET.refill_seconds
    for uid in ("one", "two"):
        record_unlinked(reporter.events, landing(uid, uid))
    reporter.events.flush()

    assert (flood, len(reporter.written)) == (BUDGET.burst, BUDGET.burst + 1)
    assert reporter.events.dropped == 6


def test_a_server_that_is_away_for_long_costs_no_memory() -> None:
    reporter = Reporter()
    reporter.api.fail("create", Unreachable("away"), times=None)

    for at in range(10 * BUDGET.burst):
        reporter.clock.now += BUDGET.refill_seconds
        record_unlinked(reporter.events, landing(f"p{at}", f"uid-{at}"))
        reporter.events.flush()
    reporter.api.heal()
    reporter.clock.now += 3600
    reporter.events.flush()

    assert len(reporter.written) == BUDGET.burst
    assert reporter.api.server.objects(NODES) == []
