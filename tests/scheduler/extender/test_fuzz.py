# SPDX-License-Identifier: Apache-2.0
"""Schemathesis on the extender's OpenAPI: no fault whatever comes, and no answer that is dropped.

Each case is sent three times: as it was drawn, aimed at the fleet with a pod that asks for GPUs,
and with a few of its bytes changed.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from scheduler.extender import openapi
from scheduler.rank_levels import BEST
from tests.conftest import SCALE
from tests.scheduler.calls import pod
from tests.scheduler.extenders import HOST, Served, served

SCHEMA = schemathesis.openapi.from_dict(json.loads(openapi.openapi_document()))
VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
FLEET: dict[str, Any] = {
    "a": {},
    "b": {"used": 0b1},
    "c": {"used": 0b1010_1100},
    "d": {"ok": 0, "used": 0xFF},
    "e": {"text": "damaged"},
}
RAW_STATUSES = (http.client.OK, http.client.BAD_REQUEST, http.client.REQUEST_ENTITY_TOO_LARGE)

SHARES = [
    ("/v1/prioritize", "POST", VALID, 14_000),
    ("/v1/prioritize", "POST", INVALID, 9_000),
    ("/v1/explain", "POST", VALID, 9_000),
    ("/v1/explain", "POST", INVALID, 4_000),
    ("/debug/nodes/{name}", "GET", VALID, 6_000),
]
"""More than 100,000 requests with SCALE=10: what has an object for a body is sent three times."""


@pytest.fixture(scope="module")
def extender() -> Iterator[Served]:
    with served(**FLEET) as running:
        yield running


@dataclass
class Client:
    """Sends cases on one connection, and judges the answers."""

    extender: Served
    session: requests.Session

    def try_out(self, case: Case[Any], data: st.DataObject) -> None:
        """All that is done with one case."""
        response = case.call(base_url=self._address, session=self.session)
        case.validate_response(response)
        self._judge(case.path, response.status_code, response.content)
        if case.method == "POST" and isinstance(case.body, dict):
            aimed = _aimed(case.body, data)
            self._send(case.path, json.dumps(aimed).encode())
            self._send(case.path, _garbled(json.dumps(case.body).encode(), data))

    @property
    def _address(self) -> str:
        return f"http://{HOST}:{self.extender.port}"

    def _send(self, path: str, body: bytes) -> None:
        reply = self.session.post(self._address + path, body)
        assert reply.status_code in RAW_STATUSES
        self._judge(path, reply.status_code, reply.content)

    def _judge(self, path: str, status: int, answer: bytes) -> None:
        assert status < http.client.INTERNAL_SERVER_ERROR
        if path == "/v1/prioritize" and status == http.client.OK:
            assert is_taken(answer), answer


def is_taken(answer: bytes) -> bool:
    """Whether the scheduler takes it as it was meant: whole scores, 0 to 10, each host once."""
    entries = json.loads(answer)
    assert isinstance(entries, list)
    hosts = [entry["Host"] for entry in entries]
    scores = [entry["Score"] for entry in entries]
    return (
        all(set(entry) == {"Host", "Score"} for entry in entries)
        and all(type(host) is str for host in hosts)
        and len(set(hosts)) == len(hosts)
        and all(type(score) is int and 0 <= score <= BEST for score in scores)
    )


def _aimed(body: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """With a pod that asks for GPUs, and nodes that are there."""
    gpus = data.draw(st.integers(0, 20) | st.text(max_size=3))
    annotations = data.draw(
        st.dictionaries(
            st.sampled_from(["gpuscape.io/link", "gpuscape.io/nic"]),
            st.sampled_from(["any", "numa", "nvlink", "true", "x"]),
        )
    )
    names = data.draw(st.lists(st.sampled_from([*FLEET, "unknown"])))
    return {**body, "Pod": pod(gpus, annotations=annotations), "NodeNames": names}


def _garbled(body: bytes, data: st.DataObject) -> bytes:
    """With some bytes in place of others."""
    at = data.draw(st.integers(0, len(body)))
    return body[:at] + data.draw(st.binary(max_size=4)) + body[at + data.draw(st.integers(0, 4)) :]


def fuzz(extender: Served, path: str, method: str, mode: GenerationMode, examples: int) -> None:
    """So many cases of one operation."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=SCALE == 1,  # a plain run is the same each time; the long one looks further
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=SCHEMA[path][method].as_strategy(generation_mode=mode), data=st.data())
    def try_out(case: Case[Any], data: st.DataObject) -> None:
        client.try_out(case, data)

    with requests.Session() as session:
        client = Client(extender, session)
        try_out()
    assert extender.count('gpuscape_scheduler_neutral_answers_total{cause="fault"}') == 0


@pytest.mark.parametrize(("path", "method", "mode", "share"), SHARES)
def test_whatever_the_document_allows_or_forbids_is_answered(
    extender: Served, path: str, method: str, mode: GenerationMode, share: int
) -> None:
    fuzz(extender, path, method, mode, share // 400)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("path", "method", "mode", "share"), SHARES)
def test_a_hundred_thousand_requests_are_answered(
    extender: Served, path: str, method: str, mode: GenerationMode, share: int
) -> None:
    fuzz(extender, path, method, mode, share * SCALE // 10)


@pytest.mark.parametrize(
    "answer",
    [
        b'[{"Host":"a","Score":11}]',
        b'[{"Host":"a","Score":-1}]',
        b'[{"Host":"a","Score":5.0}]',
        b'[{"Host":"a","Score":1},{"Host":"a","Score":1}]',
        b'[{"Host":1,"Score":1}]',
        b'[{"Host":"a","Score":1,"x":1}]',
    ],
)
def test_an_answer_that_is_not_taken_would_be_found(answer: bytes) -> None:
    assert not is_taken(answer)


def test_probes_and_documents_are_as_described(extender: Served) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        case = SCHEMA[path]["GET"].Case()
        case.call_and_validate(base_url=f"http://{HOST}:{extender.port}")
