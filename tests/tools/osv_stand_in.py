# SPDX-License-Identifier: Apache-2.0
"""A server on this machine that speaks OSV's API as its documentation has it, and refuses the rest.

Source: google.github.io/osv.dev, POST /v1/querybatch (at most 1,000 queries; ids alone, in the
order of the queries, in pages) and GET /v1/vulns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.scripted import Reply, Request, ScriptedServer, answer

PAGE = 2
"""Ids in one page; the real server has more."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """One advisory about versions of one package."""

    id: str
    ecosystem: str
    name: str
    versions: tuple[str, ...]
    more: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As GET /v1/vulns answers."""
        affected = {"package": {"ecosystem": self.ecosystem, "name": self.name}, "ranges": []}
        return {"id": self.id, "affected": [affected], **self.more}


class StandIn:
    """Serves while its block lasts."""

    def __init__(self, *published: Published) -> None:
        self.published = published
        self.batches: list[int] = []
        """How many queries each batch had."""
        self.server = ScriptedServer(self._answer)

    def __enter__(self) -> StandIn:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__(None, None, None)

    def _answer(self, request: Request) -> Reply:
        if (request.method, request.path) == ("POST", "/v1/querybatch"):
            queries = json.loads(request.body)["queries"]
            self.batches.append(len(queries))
            if len(queries) > 1000:
                return answer({"code": 3, "message": "Too many queries."}, 400)
            return answer({"results": [self._result(query) for query in queries]})
        found = {f"/v1/vulns/{each.id}": each for each in self.published}.get(request.path)
        if request.method == "GET" and found is not None:
            return answer(found.record())
        return answer({"code": 5, "message": "Bug not found."}, 404)

    def _result(self, query: dict[str, Any]) -> dict[str, Any] | None:
        package = query["package"]
        assert set(query) <= {"package", "version", "page_token"}
        assert set(package) == {"ecosystem", "name"}
        ids = [
            each.id
            for each in self.published
            if (each.ecosystem, each.name) == (package["ecosystem"], package["name"])
            and query["version"] in each.versions
        ]
        start = int(query.get("page_token", "0"))
        page = [{"id": each, "modified": "2026-01-01T00:00:00Z"} for each in ids[start:][:PAGE]]
        more = {"next_page_token": str(start + PAGE)} if len(ids) > start + PAGE else {}
        return {"vulns": page, **more} if page else {}
