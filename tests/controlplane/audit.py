# SPDX-License-Identifier: Apache-2.0
"""The API server's audit log: what it is told to note, and reading it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # its own housekeeping
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/openapi*"]},
        {
            "level": "RequestResponse",
            "verbs": _WRITES,
            "resources": [
                {"group": "", "resources": ["nodes", "nodes/*"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "nfd.k8s-sigs.io", "resources": ["nodefeatures"]},
            ],
        },
        {"level": "Metadata"},
    ],
}
"""Every request; with bodies for writes to what agents write."""


def size(log: Path) -> int:
    """How long the log is now: a mark to read on from."""
    return log.stat().st_size if log.exists() else 0


def read(log: Path, *, since: int = 0) -> Iterator[Event]:
    """Events from byte ``since`` on, one a request, in the order they were written.

    A watch stands where it began, everything else where it was answered. A line that is still
    being written is left for the next time.
    """
    seen = set()
    with log.open("rb") as lines:
        lines.seek(since, os.SEEK_SET)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            event: Event = json.loads(line)
            if event["auditID"] not in seen:
                seen.add(event["auditID"])
                yield event


def matches(
    event: Event,
    *,
    user: str | None = None,
    verb: str | Collection[str] | None = None,
    resource: str | None = None,
    subresource: str | None = None,
    namespace: str | None = None,
    name: str | None = None,
    code: int | None = None,
) -> bool:
    """Whether an event is of that kind; what is not given is not asked.

    ``subresource`` "" asks for none.
    """
    verbs = (verb,) if isinstance(verb, str) else verb
    about = event.get("objectRef", {})
    return (
        user in (None, event["user"].get("username"))
        and (verbs is None or event["verb"] in verbs)
        and resource in (None, about.get("resource"))
        and subresource in (None, about.get("subresource", ""))
        and namespace in (None, about.get("namespace", ""))
        and name in (None, about.get("name", ""))
        and code in (None, event.get("responseStatus", {}).get("code"))
    )
