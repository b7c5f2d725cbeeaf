# SPDX-License-Identifier: Apache-2.0
"""What a Node shows of a request and of its permit, in whatever state its annotations are."""

from __future__ import annotations

from typing import Any

import pytest

from agent.layouts.retry_times import ladder
from agent.layouts.shown_request import ShownRequest, permit_phase, shown_request
from api import keys, mig_permit_annotation, mig_request_annotation
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigStatusAnnotation

OLD, NEW = "00000000000000aa", "00000000000000bb"
PLAN, OTHER = "1" * 16, "2" * 16
SINCE = "2026-11-20T10:00:00Z"


def node(shown: MigRequestAnnotation | str | None = None, **permit: Any) -> dict[str, Any]:
    """The metadata of a Node with these annotations."""
    annotations = {}
    if isinstance(shown, str):
        annotations[keys.MIG_REQUEST] = shown
    elif shown is not None:
        annotations[keys.MIG_REQUEST] = mig_request_annotation.encode(shown)
    if permit:
        annotations[keys.MIG_PERMIT] = mig_permit_annotation.encode(
            MigPermitAnnotation(v=2, **permit)
        )
    return {"name": "node-a", "annotations": annotations}


def asked(request: str = NEW, *, drift: bool = False) -> MigRequestAnnotation:
    return MigRequestAnnotation(
        v=2, request=request, plan=PLAN, gpus=(0,), since=SINCE, drift=drift, modes=False
    )


def status(phase: str, request: str = "", **more: Any) -> MigStatusAnnotation:
    return MigStatusAnnotation(v=2, phase=phase, request=request, **more)


NOTHING = ShownRequest()
OPEN = ShownRequest(request=NEW, plan=PLAN, since=SINCE)


@pytest.mark.parametrize(
    ("metadata", "shows", "found"),
    [
        (node(), None, NOTHING),
        ({"name": "node-a"}, None, NOTHING),
        ({"name": "node-a", "annotations": None}, None, NOTHING),
        (node("{"), None, NOTHING),
        (node(asked()), None, OPEN),
        (
            node(asked(drift=True)),
            None,
            ShownRequest(request=NEW, plan=PLAN, since=SINCE, drift=True),
        ),
        # the status is of the request before, whatever that one came to
        (node(asked()), status("failed", OLD, outcome="rolled-back", plan=OTHER), OPEN),
        (
            node(asked()),
            status("unchanged", OLD, outcome="applied", plan=OTHER),
            ShownRequest(request=NEW, plan=PLAN, since=SINCE, reached=OTHER),
        ),
        # the status is of this request
        (node(asked()), status("waiting", NEW, plan=OTHER), OPEN),
        (
            node(asked(drift=True)),
            status("waiting", NEW, plan=OTHER, reached=OTHER),
            ShownRequest(request=NEW, plan=PLAN, since=SINCE, drift=True, reached=OTHER),
        ),
        (
            node(asked()),
            status("waiting", NEW, plan=PLAN, reached=PLAN),
            ShownRequest(request=NEW, plan=PLAN, since=SINCE, reached=PLAN),
        ),
        (
            node(asked()),
            status("failed", NEW, outcome="rolled-back"),
            ShownRequest(request=NEW, plan=PLAN, since=SINCE, outcome="rolled-back"),
        ),
        # there is a status alone
        (node(), status("idle"), NOTHING),
        (node(), status("waiting", NEW, plan=PLAN), ShownRequest(request=NEW, plan=PLAN)),
        (
            node("{"),
            status("failed", NEW, outcome="rolled-back", plan=PLAN),
            ShownRequest(request=NEW, plan=PLAN, outcome="rolled-back"),
        ),
        (
            node(),
            status("unchanged", NEW, outcome="applied", plan=PLAN),
            ShownRequest(request=NEW, plan=PLAN, outcome="applied", drift=True, reached=PLAN),
        ),
        (
            node(),
            status("waiting", NEW, plan=PLAN, reached=OTHER),
            ShownRequest(request=NEW, plan=PLAN, reached=OTHER),
        ),
        (
            node(),
            status("waiting", NEW, plan=PLAN, reached=PLAN),
            ShownRequest(request=NEW, plan=PLAN, reached=PLAN, drift=True),
        ),
        # a phase that says that the layouts are there says which by its plan
        (
            node(),
            status("unchanged", plan=PLAN, reached=OTHER),
            ShownRequest(plan=PLAN, reached=PLAN, drift=True),
        ),
    ],
)
def test_what_a_node_shows_of_the_newest_request(
    metadata: dict[str, Any], shows: MigStatusAnnotation | None, found: ShownRequest
) -> None:
    assert shown_request(metadata, shows) == found


@pytest.mark.parametrize(
    ("metadata", "request_id", "permit"),
    [
        (node(), NEW, None),
        ({"name": "node-a"}, NEW, None),
        (node(), "", None),
        *(
            (node(phase=phase, request=of), request_id, permit)
            for phase, of, request_id, permit in (
                (PermitPhase.CORDONED, NEW, NEW, PermitPhase.CORDONED),
                (PermitPhase.PROCEED, NEW, NEW, PermitPhase.PROCEED),
                (PermitPhase.CORDONED, OLD, NEW, None),
                (PermitPhase.PROCEED, OLD, NEW, None),
                (PermitPhase.PROCEED, NEW, "", None),
            )
        ),
        ({"annotations": {keys.MIG_PERMIT: "proceed"}}, NEW, None),
    ],
)
def test_leave_is_of_the_request_that_the_permit_names_and_of_no_other(
    metadata: dict[str, Any], request_id: str, permit: PermitPhase | None
) -> None:
    assert permit_phase(metadata, request_id) is permit


@pytest.mark.parametrize(
    ("seconds", "times", "waits"),
    [
        ((60.0, 3600.0), 0, 0.0),
        ((60.0, 3600.0), 1, 60.0),
        ((60.0, 3600.0), 2, 120.0),
        ((60.0, 3600.0), 6, 1920.0),
        ((60.0, 3600.0), 7, 3600.0),
        ((60.0, 3600.0), 900, 3600.0),
        ((60.0, 30.0), 1, 30.0),
    ],
)
def test_a_ladder_of_waits_begins_with_nothing_and_ends_with_the_longest(
    seconds: tuple[float, float], times: int, waits: float
) -> None:
    assert ladder(seconds, times) == waits
