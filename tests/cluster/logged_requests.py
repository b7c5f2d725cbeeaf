# SPDX-License-Identifier: Apache-2.0
"""A real API server's audit log in the form that rollouts are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from tests.controlplane.audit import Event
from tests.fleet.request_log import LoggedRequest


def logged(events: Iterable[Event], coordinator: str) -> Iterator[LoggedRequest]:
    """Writes and evictions in the order in which they were answered.

    ``coordinator``: the account's user name. Objects are there for Nodes and Leases alone.
    """
    for event in sorted(events, key=lambda it: str(it["stageTimestamp"])):
        about = event.get("objectRef", {})
        verb = "evict" if about.get("subresource") == "eviction" else event["verb"]
        if verb not in ("create", "patch", "update", "delete", "deletecollection", "evict"):
            continue
        answer = event.get("responseObject")
        yield LoggedRequest(
            at=datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
            by="coordinator" if event["user"].get("username") == coordinator else "",
            verb="delete" if verb == "deletecollection" else verb,
            resource=about.get("resource", ""),
            name=about.get("name", ""),
            dry_run="dryRun=All" in event["requestURI"],
            done=event.get("responseStatus", {}).get("code", 500) < 300,
            answer=answer if answer and answer.get("kind") in ("Node", "Lease") else None,
        )
