# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler`` as a process, with its log."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tests.agent.agent_process import GPUSCAPE, SOON, until
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.scheduler.extenders import HOST, Reply, asked


class ExtenderProcess:
    """``gpuscape scheduler``, with its log."""

    def __init__(
        self, kubeconfig: Path, *options: str, limits: Mapping[int, int] | None = None
    ) -> None:
        """``limits`` are those of the process, by their numbers in :mod:`resource`."""
        tie = end_with_parent()

        def prepare() -> None:
            tie()
            for number, limit in (limits or {}).items():
                resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))

        named = ["--kubeconfig", str(kubeconfig), "--listen", f"{HOST}:0", "--log-format", "json"]
        self.process = subprocess.Popen(
            [str(GPUSCAPE), "scheduler", *named, *options],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,
        )
        self.logged: list[dict[str, object]] = []
        threading.Thread(target=self._follow, daemon=True).start()
        until(lambda: self.says("listening") or self.process.poll() is not None)

    def ask(self, path: str, content: bytes | None = None) -> Reply:
        """One request."""
        with contextlib.closing(self.connect()) as connection:
            return asked(connection, path, content)

    def connect(self) -> http.client.HTTPConnection:
        """A connection without TLS."""
        return http.client.HTTPConnection(HOST, self.port, timeout=SOON)

    def says(self, message: str) -> bool:
        """Whether the log holds it."""
        return any(entry["message"] == message for entry in self.logged)

    def end(self) -> int:
        """By SIGTERM; its exit status."""
        self.process.terminate()
        return self.process.wait(SOON)

    @property
    def port(self) -> int:
        """Port that it listens on."""
        found = [entry["port"] for entry in self.logged if entry["message"] == "listening"]
        assert found, self.logged
        return int(str(found[0]))

    def _follow(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.logged.append(json.loads(line))


@contextlib.contextmanager
def running(
    kubeconfig: Path, *options: str, limits: Mapping[int, int] | None = None
) -> Iterator[ExtenderProcess]:
    """An extender, ended at the end; ``limits`` as of :class:`ExtenderProcess`."""
    extender = ExtenderProcess(kubeconfig, *options, limits=limits)
    try:
        yield extender
    finally:
        extender.end()


def unreachable_cluster(folder: Path) -> Path:
    """The kubeconfig of a cluster whose API server does not answer."""
    cluster = {"server": f"https://{HOST}:{free_port()}", "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "none"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path
