# SPDX-License-Identifier: Apache-2.0
"""Open watches: lines of JSON, one for each change of an object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError, ReadTimeoutError

from kube.api import Change, Watch
from kube.api_errors import Unreachable
from kube.error_answers import decoded, error_of, metadata_of, one_line

SILENCE_SECONDS = 180.0
"""Silence after which a connection counts as broken, although it was never closed.

Bookmarks come about once a minute. The limit is below the shortest time a watch lasts, so a
half-open connection is noticed by it where TCP keepalive is answered by a box in between.
"""
LONGEST_LINE_BYTES = 32 << 20
CHUNK_BYTES = 64 << 10
_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class OpenWatch:
    """See :class:`kube.api.Watch`. One thread iterates; any thread may close."""

    def __init__(self, action: str, response: HTTPResponse) -> None:
        self._action = action
        self._response = response
        self._lock = threading.Lock()
        self._closed = False
        self._read = False

    def __iter__(self) -> Iterator[Change]:
        """Ends when the server ends the watch or somebody closes it.

        Raises Expired where the server no longer knows the resourceVersion, Unreachable
        where the link broke or was silent for too long.
        """
        with self._lock:
            if self._closed:
                return
            # from here on close() wakes this thread instead of closing the response under it
            self._read = True
        try:
            for line in self._lines():
                yield self._change(line)
        except Exception as failure:
            if self._closed:  # the socket went away under the reader, as it should
                return
            if isinstance(failure, ReadTimeoutError):
                raise Unreachable(f"{self._action}: nothing came for too long") from failure
            if isinstance(failure, HTTPError | OSError):
                raise Unreachable(f"{self._action}: {one_line(str(failure))}") from failure
            raise
        finally:
            self._response.close()

    def close(self) -> None:
        """See :class:`kube.api.Watch`."""
        with self._lock:
            self._closed = True
            if not self._read:  # no reader will close it
                self._response.close()
                return
        with suppress(OSError, RuntimeError, ValueError):  # it may have ended just now
            self._response.shutdown()  # wakes the reader, which then closes the rest

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(CHUNK_BYTES, decode_content=False):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
            if len(rest) > LONGEST_LINE_BYTES:
                raise Unreachable(f"{self._action}: one message is over {LONGEST_LINE_BYTES} bytes")
        if rest:
            yield rest

    def _change(self, line: bytes) -> Change:
        message = decoded(self._action, line)
        kind, content = message.get("type"), message.get("object")
        if not isinstance(kind, str) or not isinstance(content, dict):
            raise Unreachable(f"{self._action}: a message without type or object")
        # an error inside the stream has no HTTP status of its own: the code is in the Status
        if kind == "ERROR":
            raise error_of(self._action, content.get("code", 500), content, headers={})
        if kind not in _TYPES:
            raise Unreachable(f"{self._action}: a message of the unknown type {one_line(kind)}")
        # without a version the next watch could not continue here
        if not isinstance(metadata_of(content).get("resourceVersion"), str):
            raise Unreachable(f"{self._action}: a message about an object without a version")
        return Change(type=kind, object=content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the objects of a list."""

    changes: Sequence[Change]
    version: str
    """resourceVersion of the whole list."""


class ListedWatch:
    """A list, then a mark, then the watch that goes on from there.

    Only one page is held at a time, whatever the size of the list. The watch is opened when
    all pages are read; where that took so long that the server forgot the version, it is
    Expired.
    """

    def __init__(self, pages: Iterator[Page], watch_from: Callable[[str], Watch]) -> None:
        self._pages = pages
        self._watch_from = watch_from
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._closed = False

    def __iter__(self) -> Iterator[Change]:
        """Iterate as :class:`kube.api.Watch`; raises the errors of requesting a page too."""
        version = ""
        for page in self._pages:
            version = page.version
            for change in page.changes:
                if self._closed:
                    return
                yield change
            if self._closed:
                return
        yield mark(version)
        watch = self._watch_from(version)
        with self._lock:
            self._watch = watch
            if self._closed:  # while the watch was being opened, and there was none to close
                watch.close()
        yield from watch

    def close(self) -> None:
        """See :class:`kube.api.Watch`; a request that is under way runs out first."""
        with self._lock:
            self._closed = True
            if self._watch is not None:
                self._watch.close()


class StartedWatch:
    """A watch whose start was put together from other answers."""

    def __init__(
        self, watch: Watch, *, head: Sequence[Change] = (), behind_first: Change | None = None
    ) -> None:
        """Sends ``head``, then the watch, with ``behind_first`` after its first change."""
        self._watch = watch
        self._head = head
        self._behind_first = behind_first

    def __iter__(self) -> Iterator[Change]:
        """Iterate over the put-together start, then the watch."""
        yield from self._head
        for change in self._watch:
            yield change
            if self._behind_first is not None:
                yield self._behind_first
                self._behind_first = None

    def close(self) -> None:
        """See :class:`kube.api.Watch`."""
        self._watch.close()


def mark(version: str | None) -> Change:
    """A bookmark of our own; without a version no watch can go on from it."""
    return Change(type="BOOKMARK", object={"metadata": {"resourceVersion": version}})
