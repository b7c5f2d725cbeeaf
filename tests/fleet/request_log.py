# SPDX-License-Identifier: Apache-2.0
"""Every request that changed something, or was to, as an audit log has it: what rollouts are judged
by. Here for the API server in memory; a real one's log is read into the same form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kube.api import ApiResource, Object
from tests.fakes.api import Call, FakeApi, Server
from tests.fakes.server import Key

T = TypeVar("T")
_VERBS = {"ADDED": "create", "MODIFIED": "patch", "DELETED": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request that an API server has answered."""

    at: float
    """Seconds."""
    by: str
    """Which coordinator; empty: somebody else."""
    verb: str
    """create, patch, delete or evict."""
    resource: str
    """As in a URL."""
    name: str
    dry_run: bool = False
    done: bool = True
    """The server did it."""
    answer: Object | None = None
    """The object as it was then; None where the log has none. Not to be changed."""


class LoggedServer(Server):
    """Keeps the log."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self.log: list[LoggedRequest] = []
        self.caller = ""
        """The coordinator whose request is being carried out."""

    def note(self, call: Call, by: str, place: int, *, done: bool) -> None:
        """Note a request that no new version stands for, at its place in the log."""
        self.log.insert(
            place,
            LoggedRequest(
                at=self._clock(),
                by=by,
                verb=call.verb,
                resource=call.resource.plural,
                name=call.name or "",
                dry_run=call.dry_run,
                done=done,
            ),
        )

    def _store(self, key: Key, happened: str, new: Object) -> Object:
        answer = super()._store(key, happened, new)
        self.log.append(
            LoggedRequest(
                at=self._clock(),
                by=self.caller,
                verb=_VERBS[happened],
                resource=_plural(key[0]),
                name=key[2],
                answer=self._history[-1].object,
            )
        )
        return answer


class LoggedApi(FakeApi):
    """A coordinator's client of such a server; ``manager`` is its name."""

    def _run(self, call: Call, act: Callable[[], T]) -> T:
        server = self.server
        assert isinstance(server, LoggedServer)

        def noted() -> T:
            # what an eviction does to the pod is the server's work
            server.caller = "" if call.verb == "evict" else self.manager
            before, place, done = server.version, len(server.log), False
            try:
                answer = act()
                done = True
            finally:
                server.caller = ""
                if call.verb not in ("get", "watch") and (
                    call.verb == "evict" or server.version == before
                ):
                    server.note(call, self.manager, place, done=done)
            return answer

        return super()._run(call, noted)


def _plural(resource: ApiResource) -> str:
    return resource.plural
