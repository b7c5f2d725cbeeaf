# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler certificates`` as a process, started as its Deployment starts it."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from api import names
from tests.agent.agent_process import SOON, until
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.own import OwnPlane
from tests.deploy.deployments import program_process

SECRETS = {"server": names.SCHEDULER_TLS, "client": names.KUBE_SCHEDULER_TLS}
"""Of each side of the connection between kube-scheduler and the extender."""


class CertificateProgram:
    """The process. It is ready as soon as it has left all Secrets as they should be."""

    def __init__(self, plane: OwnPlane, node: str, folder: Path) -> None:
        """``node`` is where its pod is, whose token it has."""
        self._port = free_port()
        token = plane.bound_token(names.NAMESPACE, names.CERTIFICATES, node)
        argv, environment = program_process(
            "certificates",
            {},
            listen=f"127.0.0.1:{self._port}",
            more={"kubeconfig": str(plane.kubeconfig(token=token))},
        )
        self._log = folder / f"certificates-{self._port}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                argv,
                env=environment,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(signal.SIGTERM),
            )

    @property
    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")

    def is_ready(self) -> bool:
        """Whether its probe says so."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SOON)
        try:
            with contextlib.closing(connection):
                connection.request("GET", "/readyz")
                return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def until_ready(self) -> None:
        """Wait for that."""
        until(lambda: self.process.poll() is not None or self.is_ready())
        assert self.process.poll() is None, self.said

    def end(self) -> int:
        """By SIGTERM; its exit status."""
        self.process.terminate()
        return self.process.wait(SOON)


@contextlib.contextmanager
def certificates(plane: OwnPlane, node: str, folder: Path) -> Iterator[CertificateProgram]:
    """One that is ready, ended at the end."""
    made = CertificateProgram(plane, node, folder)
    try:
        made.until_ready()
        yield made
    finally:
        made.end()
