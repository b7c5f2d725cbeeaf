# SPDX-License-Identifier: Apache-2.0
"""What a sink says, and how often."""

from __future__ import annotations

import logging

import pytest

from agent.cluster.sink_reports import SinkReports, by_reason
from tests.agent.cluster.sinks import Said
from tests.log_lines import log_lines


def test_a_failure_is_said_once_and_again_when_its_reason_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = Said()
    reports = said.reports("Node")

    for why in ("403", "403", "422", "422"):
        reports.failed(why, lasting=True)

    assert [(line.levelname, line.__dict__["why"]) for line in caplog.records] == [
        ("ERROR", "403"),
        ("ERROR", "422"),
    ]
    assert said.events == [("NotWritten", "403"), ("NotWritten", "422")]
    assert reports.error == "422"


def test_what_passes_by_itself_is_a_warning_without_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = Said()
    said.reports("Node").failed("429", lasting=False)

    assert [line.levelname for line in caplog.records] == ["WARNING"]
    assert said.events == []


def test_after_a_success_the_same_failure_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    reports = SinkReports("Node")
    with caplog.at_level(logging.INFO):
        reports.failed("429", lasting=False)
        reports.wrote(3)
        ended = reports.error
        reports.failed("429", lasting=False)
        reports.well()
        reports.well()

    assert ended is None
    assert [line.message for line in caplog.records] == [
        "object not written",
        "object written",
        "object writes recovered",
        "object not written",
        "object writes recovered",
    ]


def test_every_write_is_counted() -> None:
    said = Said()
    reports = said.reports("Node")

    reports.wrote(1)
    reports.wrote(2)

    assert said.writes == 2


def test_keys_kept_out_are_told_when_they_change() -> None:
    said = Said()
    reports = said.reports("Node")

    for left, dropped in (
        ({"a": "his"}, {}),
        ({"a": "his"}, {}),
        ({}, {"b": "too large"}),
        ({}, {}),
    ):
        reports.kept_out(left, dropped)

    assert said.events == [("KeysLeftAlone", "a: his"), ("KeysDropped", "b: too large")]
    assert said.left_alone == [1, 0]


def test_refused_keys_are_counted_and_told_when_they_change() -> None:
    said = Said()
    reports = said.reports("Node")

    for keys in ({}, {"a": "no"}, {"a": "no"}, {}):
        reports.refused(keys)

    assert said.events == [("KeysRefused", "a: no")]
    assert said.refused == [0, 1, 0]


def test_of_many_keys_ten_are_named_and_the_rest_counted() -> None:
    assert by_reason({f"k{at}": "no" for at in range(10)}).endswith("k9: no")
    assert by_reason({f"k{at}": "no" for at in range(12)}).endswith("k8, k9 and 2 more: no")


def test_keys_with_one_reason_share_it() -> None:
    assert by_reason({"a": "his", "b": "hers", "c": "his"}) == "a, c: his; b: hers"


def test_what_is_written_fails_and_recovers_has_its_lines_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    reports = SinkReports("Lease")
    reports.wrote(3)
    reports.failed("429", lasting=False)
    reports.failed("403", lasting=True)
    reports.well()
    assert log_lines(caplog) == [
        ("INFO", "object written", {"object": "Lease", "keys": 3}),
        ("WARNING", "object not written", {"object": "Lease", "why": "429"}),
        ("ERROR", "object not written", {"object": "Lease", "why": "403"}),
        ("INFO", "object writes recovered", {"object": "Lease"}),
    ]


def test_keys_of_others_without_room_and_refused_have_a_line_each_and_one_when_they_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each of the three changes without the others, and comes again after it was over."""
    caplog.set_level("INFO")
    said = Said()
    reports = said.reports("Node")
    his, large, no = {"a": "his"}, {"b": "too large"}, {"c": "no"}
    for _ in range(2):
        for left, dropped, refused in (({}, {}, {}), (his, large, no), (his, large, no)):
            reports.kept_out(left, dropped)
            reports.refused(refused)
    reports.kept_out({"a": "hers"}, large)

    lines = [
        ("keys left alone", "a: his"),
        ("keys dropped", "b: too large"),
        ("keys refused", "c: no"),
    ]
    came = [("WARNING", what, {"object": "Node", "why": why}) for what, why in lines]
    went = [("INFO", what, {"object": "Node", "why": "none any more"}) for what, _ in lines]
    hers = ("WARNING", "keys left alone", {"object": "Node", "why": "a: hers"})
    assert log_lines(caplog) == [*came, *went, *came, hers]
    events = [
        ("KeysLeftAlone", "a: his"),
        ("KeysDropped", "b: too large"),
        ("KeysRefused", "c: no"),
    ]
    assert said.events == [*events, *events, ("KeysLeftAlone", "a: hers")]
    assert said.left_alone == said.refused == [0, 1, 0, 1]
