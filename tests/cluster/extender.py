# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler`` as a process, started as its Deployment starts it."""

from __future__ import annotations

import contextlib
import http.client
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from api import names
from tests.agent.agent_process import GPUSCAPE, SOON, until
from tests.cluster.front import HOST, Connection, Keys
from tests.cluster.scheduling import SERVICE, Stage
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.programs import LAST_LINES, ProgramError
from tests.deploy.deployments import extender_process

PATIENT = {"budget": "20s"}
"""Options of one whose answers a test rests on, however busy this machine is."""

TLS_MOUNT = "/etc/gpuscape/tls"


class Extender:
    """The process, which may be killed and started again on its port."""

    def __init__(
        self, stage: Stage, folder: Path, options: Mapping[str, str] | None = None
    ) -> None:
        """``options`` are further ones by their names on the command line."""
        self.port = free_port()
        self._client = stage.client
        kubeconfig = stage.plane.kubeconfig(token=stage.token(names.SCHEDULER))
        more = {"kubeconfig": str(kubeconfig), **(options or {})}
        self._argv, self._environment = extender_process(
            {TLS_MOUNT: stage.server.certificate.parent},
            listen=f"{HOST}:{self.port}",
            more=more,
        )
        self._log = folder / "extender.log"
        self.process = self._started()

    @property
    def address(self) -> str:
        """Of its server."""
        return f"https://{HOST}:{self.port}"

    def start_again(self, program: Path = GPUSCAPE) -> None:
        """After it ended; ready when this returns. ``program``: another state of the project's."""
        self._argv[0] = str(program)
        self.process.wait(SOON)
        self.process = self._started()
        self.until_ready()

    def kill(self) -> None:
        """By SIGKILL."""
        self.process.kill()
        self.process.wait(SOON)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """However it is."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(SOON)

    def until_ready(self) -> None:
        """Wait until it says so. Raises ProgramError when it ends instead."""
        until(lambda: self.process.poll() is not None or self._is_ready())
        if ending := self.ending():
            raise ProgramError(f"the extender {ending}")

    def ending(self) -> str:
        """How it ended, with its last lines; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        lines = self.said.splitlines()[-LAST_LINES:] or ["none"]
        return "\n".join([f"ended with {code}; its last lines:", *lines])

    @property
    def said(self) -> str:
        """Its log."""
        return self._log.read_text(errors="replace")

    def ask(
        self, method: str, path: str, body: bytes | None = None, keys: Keys | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one request, with kube-scheduler's certificate or another's."""
        context = (keys or self._client).context(ssl.Purpose.SERVER_AUTH)
        with contextlib.closing(Connection(self.port, context, SERVICE)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._argv,
                env=self._environment,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent(signal.SIGTERM),
            )


@contextlib.contextmanager
def extender(
    stage: Stage, folder: Path, options: Mapping[str, str] | None = None
) -> Iterator[Extender]:
    """One that is ready, ended at the end."""
    made = Extender(stage, folder, options)
    try:
        made.until_ready()
        yield made
    finally:
        made.end()
