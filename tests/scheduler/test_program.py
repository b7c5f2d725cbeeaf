"""The helper as a process: from its start to its end, with and without an API server."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from labelers import keys, names
from tests.agent.processes import GPUSCAPE, SOON, until
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.plane import Plane
from tests.scheduler import fleets
from tests.scheduler.calls import body
from tests.scheduler.extenders import HOST, Reply, asked


class Helper:
    """``gpuscape scheduler``, with its log."""

    def __init__(self, kubeconfig: Path, *options: str) -> None:
        named = ["--kubeconfig", str(kubeconfig), "--listen", f"{HOST}:0", "--log-format", "json"]
        self.process = subprocess.Popen(
            [str(GPUSCAPE), "scheduler", *named, *options],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent(),
        )
        self.logged: list[dict[str, object]] = []
        threading.Thread(target=self._follow, daemon=True).start()
        until(lambda: self._port is not None or self.process.poll() is not None)

    def ask(self, path: str, content: bytes | None = None) -> Reply:
        """One request."""
        port = self._port
        assert port is not None, self.logged
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=SOON)) as connection:
            return asked(connection, path, content)

    def says(self, message: str) -> bool:
        """Whether the log holds it."""
        return any(entry["message"] == message for entry in self.logged)

    def end(self) -> int:
        """By SIGTERM; its exit status."""
        self.process.terminate()
        return self.process.wait(SOON)

    @property
    def _port(self) -> int | None:
        found = [entry["port"] for entry in self.logged if entry["message"] == "listening"]
        return int(str(found[0])) if found else None

    def _follow(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.logged.append(json.loads(line))


@contextlib.contextmanager
def running(kubeconfig: Path, *options: str) -> Iterator[Helper]:
    """A helper, ended at the end."""
    helper = Helper(kubeconfig, *options)
    try:
        yield helper
    finally:
        helper.end()


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
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
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def test_without_an_api_server_it_lives_is_not_ready_and_scores_nothing(nobody: Path) -> None:
    with running(nobody) as helper:
        until(lambda: helper.says("nothing is heard"))
        assert helper.ask("/livez").status == http.client.OK
        assert helper.ask("/readyz").status == http.client.SERVICE_UNAVAILABLE
        assert helper.ask("/v1/prioritize", body()).body == b"[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success(nobody: Path, number: signal.Signals) -> None:
    with running(nobody) as helper:
        helper.process.send_signal(number)
        assert helper.process.wait(SOON) == 0
        until(lambda: helper.says("ended"))


def test_files_that_are_not_there_end_it_at_once_in_one_sentence(nobody: Path) -> None:
    options = ["--tls-cert-file", "/none.crt", "--tls-private-key-file", "/none.key"]
    ran = subprocess.run(
        [GPUSCAPE, "scheduler", "--kubeconfig", nobody, *options],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr == "Error: cannot read /none.crt: No such file or directory\n"


@pytest.mark.cluster
def test_in_a_cluster_it_scores_what_agents_tell(plane: Plane) -> None:
    plane.account(names.NAMESPACE, "default")
    free, full = (plane.make_node(annotations={keys.TOPOLOGY: fleets.topology()}) for _ in "ab")
    for node, used in ((free, 0), (full, 0xFF)):
        lease = fleets.lease(used=used, renewed="2026-11-20T08:00:00.000000Z")
        lease["metadata"] |= {"name": names.lease(node), "uid": None}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
        plane.demand("POST", path, lease)

    with running(plane.kubeconfig()) as helper:
        until(lambda: helper.ask("/readyz").status == http.client.OK)
        scores = json.loads(helper.ask("/v1/prioritize", body([free, full])).body)
        shown = json.loads(helper.ask(f"/debug/nodes/{full}").body)

    assert {each["Host"]: each["Score"] for each in scores} == {free: 10, full: 0}
    assert shown["used"] == list(range(8))


def test_it_imports_nothing_of_the_agent() -> None:
    script = (
        "import sys, scheduler.program; print({name.partition('.')[0] for name in sys.modules}"
        " & {'agent', 'pynvml', 'grpc', 'apscheduler', 'click', 'rich'})"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
