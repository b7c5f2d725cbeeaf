# SPDX-License-Identifier: Apache-2.0
"""Clients without a certificate, as many as like, and the scheduler that works meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import resource
import ssl
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.agent.agent_process import SOON
from tests.scheduler.calls import body
from tests.scheduler.extender_process import ExtenderProcess, running, unreachable_cluster
from tests.scheduler.extenders import HOST, asked
from tests.scheduler.strangers import STRANGERS, Stranger
from tests.web.certificates import Certificate, authority, issued

OURS = authority("ours")
SCHEDULER = issued(OURS, "system:kube-scheduler", ())
CALLS = 20
"""Of the scheduler on each kind of connection, once all strangers are there."""
AT_ONCE = 8
"""Strangers that connect at the same time."""


@pytest.fixture
def extender(tmp_path: Path) -> Iterator[ExtenderProcess]:
    """One that serves clients with a certificate, and a descriptor here for each stranger."""
    issued(OURS, "server").write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    options = {
        "tls-cert-file": "tls.crt",
        "tls-private-key-file": "tls.key",
        "client-ca-file": "ca.crt",
    }
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    named = [f"--{name}={tmp_path / file}" for name, file in options.items()]
    with running(unreachable_cluster(tmp_path), *named) as made:
        yield made
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def context(folder: Path, certificate: Certificate | None) -> ssl.SSLContext:
    """A client that shows this certificate, if any."""
    made = ssl.create_default_context(cadata=OURS.pem.decode())
    if certificate is not None:
        certificate.write(folder, "client")
        made.load_cert_chain(folder / "client.crt", folder / "client.key")
    return made


@pytest.mark.parametrize("count", [64, 500])
@pytest.mark.parametrize("stranger", STRANGERS)
def test_no_request_of_a_scheduler_fails_however_many_strangers_connect(
    extender: ExtenderProcess, tmp_path: Path, stranger: Stranger, count: int
) -> None:
    client, trusting = context(tmp_path, SCHEDULER), context(tmp_path, None)
    statuses: Counter[int] = Counter()

    def connected() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(HOST, extender.port, timeout=SOON, context=client)

    with contextlib.ExitStack() as opened, ThreadPoolExecutor(AT_ONCE) as pool:
        kept = opened.enter_context(contextlib.closing(connected()))

        def call_twice() -> None:
            """On the connection that is kept, and on a new one."""
            statuses[asked(kept, "/v1/prioritize", body()).status] += 1
            with contextlib.closing(connected()) as new:
                statuses[asked(new, "/v1/prioritize", body()).status] += 1

        def stay() -> None:
            with contextlib.suppress(OSError):  # it had to make room already
                opened.enter_context(stranger(extender.port, trusting))

        call_twice()
        connection = kept.sock
        coming = [pool.submit(stay) for _ in range(count)]
        while not all(each.done() for each in coming):
            call_twice()
        for _ in range(CALLS):
            call_twice()
        for each in coming:
            each.result()
        assert kept.sock is connection is not None
    assert statuses.keys() == {HTTPStatus.OK}, statuses
