# SPDX-License-Identifier: Apache-2.0
"""A server that speaks the API of OSV: which advisories are about which versions.

Source: google.github.io/osv.dev, POST /v1/querybatch and GET /v1/vulns.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from base.errors import Transient
from tools.advisories.pins import Pin

MOST_QUERIES: Final = 1000
"""Queries in a batch at most."""
_MOST_BATCHES: Final = 100
"""A server that always has one more page does not keep us for ever."""
_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """A published advisory, as far as it is about a given package."""

    id: str
    aliases: tuple[str, ...] = ()
    summary: str = ""
    fixed: tuple[str, ...] = ()
    """Versions from which it does not hold, in the order of the record."""
    is_withdrawn: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Its id and its aliases."""
        return frozenset((self.id, *self.aliases))


class OsvServer:
    """Every failure is Transient: nothing was compared, or not all."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def ids(self, pins: Sequence[Pin]) -> Mapping[Pin, tuple[str, ...]]:
        """Ids of the advisories about each pin that has some."""
        ids_by_pin: dict[Pin, list[str]] = {}
        due: list[tuple[Pin, str]] = [(pin, "") for pin in pins]
        for _ in range(_MOST_BATCHES):
            if not due:
                return {pin: tuple(ids) for pin, ids in ids_by_pin.items()}
            batch, due = due[:MOST_QUERIES], due[MOST_QUERIES:]
            for (pin, _token), result in zip(batch, self._batch(batch), strict=True):
                for record in result.get("vulns") or ():
                    ids_by_pin.setdefault(pin, []).append(str(record["id"]))
                if token := result.get("next_page_token"):
                    due.append((pin, str(token)))
        raise Transient(f"{self._url}: more than {_MOST_BATCHES} batches of answers")

    def advisory(self, id: str, pin: Pin) -> Advisory:  # noqa: A002  # the API's word
        """What is published under an id, as far as it is about the package of a pin."""
        record = self._answer(f"/v1/vulns/{quote(id, safe='')}")
        try:
            return Advisory(
                id=id,
                aliases=tuple(map(str, record.get("aliases") or ())),
                summary=str(record.get("summary") or record.get("details") or ""),
                fixed=tuple(_fixed(record, pin)),
                is_withdrawn=bool(record.get("withdrawn")),
            )
        except (AttributeError, TypeError) as error:
            raise self._odd(f"advisory {id}") from error

    def _batch(self, batch: Sequence[tuple[Pin, str]]) -> Sequence[Mapping[str, Any]]:
        queries = [
            {
                "package": {"ecosystem": pin.ecosystem, "name": pin.name},
                "version": pin.version,
                **({"page_token": token} if token else {}),
            }
            for pin, token in batch
        ]
        results = self._answer("/v1/querybatch", {"queries": queries}).get("results")
        if not isinstance(results, list) or len(results) != len(batch):
            raise self._odd("not one result for each query")
        try:
            for result in results:
                for record in result.get("vulns") or ():
                    str(record["id"])
        except (AttributeError, KeyError, TypeError) as error:
            raise self._odd("a result without ids") from error
        return results

    def _answer(self, path: str, question: object = None) -> Mapping[str, Any]:
        body = None if question is None else json.dumps(question).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "gpuscape-advisories"}
        request = urllib.request.Request(self._url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise Transient(f"{self._url}{path}: {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise Transient(f"{self._url}: no answer: {reason}") from error
        except ValueError as error:
            raise self._odd("no JSON") from error
        if not isinstance(answer, dict):
            raise self._odd("no object")
        return answer

    def _odd(self, fault: str) -> Transient:
        return Transient(f"{self._url}: the answer is not one of OSV's API: {fault}")


def _fixed(record: Mapping[str, Any], pin: Pin) -> Iterator[str]:
    """Versions, not commits."""
    for affected in record.get("affected") or ():
        package = affected.get("package") or {}
        if (package.get("ecosystem"), package.get("name")) == (pin.ecosystem, pin.name):
            for span in affected.get("ranges") or ():
                if span.get("type") != "GIT":
                    for event in span.get("events") or ():
                        if "fixed" in event:
                            yield str(event["fixed"])
