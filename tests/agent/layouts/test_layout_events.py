# SPDX-License-Identifier: Apache-2.0
"""Events on a MIG change: their texts, and how often there is one."""

from __future__ import annotations

from msgspec.structs import replace

from agent.layouts.layout_events import LayoutEvent, LayoutEvents
from api.mig_status_annotation import VERSION, MigPhase, MigStatusAnnotation, RequestSource

REFUSED = MigStatusAnnotation(v=VERSION, phase=MigPhase.REFUSED, request="0" * 16, reason="why")


def test_a_status_without_a_source_is_its_reason_alone() -> None:
    """As while the desired layout keeps changing: it has not been read yet."""
    events = LayoutEvents()
    events.changing(REFUSED)
    assert events.take() == [LayoutEvent(reason="MigChangeRefused", note="why", warning=True)]


def test_each_phase_of_a_request_has_one_event_across_restarts() -> None:
    events = LayoutEvents()
    status = replace(REFUSED, source=RequestSource.LABEL, desired="all-1g.5gb")
    events.go_on_from(status)
    events.changing(status)
    assert events.take() == []
    for request in ("1" * 16, "1" * 16, "2" * 16):
        events.changing(replace(status, request=request))
    assert [event.note for event in events.take()] == ["desired by label: all-1g.5gb: why"] * 2
