# SPDX-License-Identifier: Apache-2.0
"""A node goes from NVIDIA's MIG manager to gpuscape and back, by the lines of docs/mig-manager.md.

The manager is NVIDIA's own program with its script, nvidia-mig-parted and kubectl; agent and
actuator are real, on a real API server under the shipped policies. What the DaemonSet controller
and the kubelet do for the manager's pod is played: it runs where the Node's label says so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from actuator.journal import Journal
from api import keys
from api.mig_permit_annotation import PermitPhase
from tests.actuator.actuator_process import started
from tests.actuator.simulated_node import FIVE, node
from tests.agent.agent_process import SOON, until
from tests.cluster.agents import Site
from tests.cluster.mig_manager_page import PACED, play
from tests.cluster.test_layouts import EnforcingNode
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES, MIG_MANAGER, NVIDIA
from tests.foreign.foreign_programs import Foreign, foreign
from tests.kubelet_nodes.devices import Pod

pytestmark = [pytest.mark.cluster, pytest.mark.long]

CONFIGS: Final = """\
version: v1
mig-configs:
  fives: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 3, 2g.10gb: 2}}]
  sevens: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  halves: [{devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}]
"""
ON: Final = "nvidia.com/gpu.deploy.mig-manager"
CLIENTS: Final = {
    f"nvidia.com/gpu.deploy.{it}": "true"
    for it in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
}
POD: Final = Pod(namespace="gpu-operator", name="nvidia-mig-manager-x7k2p", containers=())
SEVENS: Final = ["1g.5gb"] * 7
HALVES: Final = ["3g.20gb"] * 2


class Manager:
    """NVIDIA's MIG manager on one node; it runs while the Node's label says ``true``."""

    def __init__(self, site: Site, of: EnforcingNode, there: Foreign, folder: Path) -> None:
        self._site = site
        self._node = of
        self._there = there
        self._folder = folder
        script = folder / "reconfigure-mig.sh"
        script.write_bytes((binaries(MIG_MANAGER) / script.name).read_bytes())
        script.chmod(0o755)
        self._script = script
        self._log = folder / "manager.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def updates(self) -> int:
        """How often it has brought the node to a label's layout, or found it there."""
        return self.log.count("Successfully updated to MIG config")

    def stops(self) -> int:
        """How often it has stopped the node's clients, which it does before each change."""
        return self.log.count("Shutting down all GPU clients in Kubernetes")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join(SOON)
            self._stop()

    def _follow(self) -> None:
        while not self._ended.wait(0.3):
            wanted = self._site.labels(self._node.name).get(ON) == "true"
            if wanted and not self.runs:
                self._node.kubelet.show({}, [POD])
                self._start()
            elif not wanted and self.runs:
                self._stop()
                self._node.kubelet.show({}, [])

    def _start(self) -> None:
        path = (binaries(NVIDIA), binaries(KUBERNETES["1.37"]), os.environ["PATH"])
        environment = {
            "KUBECONFIG": str(self._site.plane.kubeconfig()),
            "NODE_NAME": self._node.name,
            "CONFIG_FILE": str(self._folder / "configs.yaml"),
            "RECONFIGURE_SCRIPT": str(self._script),
            "HOST_ROOT_MOUNT": str(self._folder),
            "DEFAULT_GPU_CLIENTS_NAMESPACE": "gpu-operator",
        }
        with self._log.open("ab") as log:
            self._process = self._there.start(
                binaries(MIG_MANAGER) / "nvidia-mig-manager",
                log=log,
                environment=environment,
                covered=("sys", "proc"),
                path=os.pathsep.join(map(str, path)),
            )

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(SOON)


@pytest.mark.timeout(900)
def test_a_node_goes_over_and_comes_back_and_no_instance_is_touched_by_that(
    site: Site, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="manager-") as short, contextlib.ExitStack() as open_:
        folder = Path(short)
        on, socket = node(folder, *FIVE), folder / "run" / "a.sock"
        (folder / "configs.yaml").write_text(CONFIGS)
        ours = EnforcingNode(
            site, tmp_path, on, socket, {"GPUSCAPE_MIG_CONFIG": str(folder / "configs.yaml")}
        )
        name = ours.name
        labels = {"pool": "a100", ON: "true", keys.MIG_CONFIG: "sevens", **CLIENTS}
        site.edit(name, labels=labels)
        ours.kubelet.show({}, [POD])
        ours.kubelet.start()
        open_.callback(ours.kubelet.stop)
        ours.holds()
        open_.enter_context(started(on, socket))
        there = open_.enter_context(foreign(on.simulation))
        manager = Manager(site, ours, there, folder)
        open_.enter_context(ours.agent())

        def shown() -> tuple[str, str]:
            return ours.status.phase, ours.status.unadopted

        # beside it: what its label asks for is done by it alone, now and when it changes
        until(lambda: shown() == ("unadopted", "sevens"))
        open_.enter_context(manager.running())
        until(lambda: manager.updates() == 1)
        assert (ours.profiles(), ours.state, manager.stops()) == (SEVENS, "success", 1)
        site.edit(name, labels={keys.MIG_CONFIG: "halves"})
        until(lambda: manager.updates() == 2)
        until(lambda: shown() == ("unadopted", "halves"))
        assert (ours.profiles(), ours.state) == (HALVES, "success")
        made = on.found()

        # over: the label and its state are ours, and nothing else has changed
        play(site.plane, "to gpuscape")
        until(lambda: shown() == ("unchanged", ""))
        until(lambda: not manager.runs)
        assert (on.found(), ours.state, manager.stops()) == (made, "success", 2)
        assert ours.leave.request() is None
        with Journal(on.journal, lock=False) as journal:
            assert journal.content().ended == ()
        site.edit(name, labels={keys.MIG_CONFIG: "fives"})
        until(lambda: ours.leave.request() is not None)
        until(lambda: ours.state == "pending")
        ours.leave.give(PermitPhase.CORDONED)
        request = ours.leave.give(PermitPhase.PROCEED)
        until(lambda: ours.ended == (request, "applied"))
        until(lambda: ours.state == "success")
        ours.leave.take_back()
        made = on.found()
        assert len(made) == len(FIVE)

        # and back
        play(site.plane, "back")
        until(lambda: manager.runs and manager.updates() == 3)
        until(lambda: (shown(), ours.state) == (("unadopted", "fives"), "success"), PACED)
        assert (on.found(), manager.stops()) == (made, 2)
        there_now = site.labels(name)
        assert {key: there_now.get(key) for key in CLIENTS} == CLIENTS
        ours_left = {it for it in site.annotations(name) if it.startswith("gpuscape.io/mig")}
        assert ours_left == {keys.MIG_STATUS}
        site.edit(name, labels={keys.MIG_CONFIG: "sevens"})
        until(lambda: manager.updates() == 4)
        assert (ours.profiles(), ours.state) == (SEVENS, "success")
        until(lambda: shown() == ("unadopted", "sevens"), PACED)
        with Journal(on.journal, lock=False) as journal:
            assert [it.change for it in journal.content().ended] == [request]
