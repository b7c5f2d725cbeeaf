# SPDX-License-Identifier: Apache-2.0
"""The program that makes certificates as a process: wires the parts and obeys signals."""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from api import names
from base.defects import Defects
from base.process import process_signals
from kube.client import Program, connect
from scheduler.certificates.certificate_rotation import (
    AGAIN_SECONDS,
    CHECK_SECONDS,
    CertificateRotation,
)
from scheduler.certificates.certificates_settings import CertificatesSettings
from web import messages
from web.server import HttpServer

log = logging.getLogger(__name__)

_STUCK_SECONDS: Final = CHECK_SECONDS + 300.0
"""A round that takes longer hangs: its requests have shorter deadlines."""
_STOP_SECONDS: Final = 1.0


def run(settings: CertificatesSettings) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Raises BadInput or Permanent where it cannot start. An API server that does not answer is no
    reason to end.
    """
    ended = process_signals.end_event()
    program = Program(name=names.CERTIFICATES, version=version("gpuscape"))
    client = connect(program, kubeconfig=settings.kubeconfig)
    rotation = CertificateRotation(
        client, namespace=settings.namespace, clock=lambda: datetime.now(UTC)
    )
    began = time.monotonic()
    server = HttpServer(
        settings.listen,
        {
            "/livez": lambda: messages.probe(time.monotonic() - began < _STUCK_SECONDS),
            "/readyz": lambda: messages.probe(rotation.is_settled),
        },
        title="gpuscape scheduler certificates",
    )
    server.start()
    log.info("listening", extra={"serves": "probes", "address": str(server.address)})
    defects = Defects()
    with contextlib.closing(client):
        seconds = 0.0
        while not ended.wait(seconds):
            began, seconds = time.monotonic(), AGAIN_SECONDS
            with defects.contained("certificates"):
                seconds = rotation.tick()
    server.stop(_STOP_SECONDS)
    log.info("certificates no longer renewed")
    return 0
