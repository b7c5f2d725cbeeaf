# SPDX-License-Identifier: Apache-2.0
"""A node in the middle of a MIG change whose programs, or the coordinator, are of two releases.

Agent, actuator and coordinator are processes on a simulated machine and a real API server. The
change stops in a phase until it is released: pods, a paused process or a hanging driver hold it.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from simulator.simulation import Hang
from tests.actuator.actuator_process import ActuatorProcess, started
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.agent.agent_process import SOON, until
from tests.cluster.agents import Site, agent
from tests.cluster.mig_nodes import coordinator_process
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.kubelet_nodes.checkpoint_file import write_checkpoint
from tests.kubelet_nodes.podresources import PodResourcesServer

LAYOUT: Final = '{"0": {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}}'
"""A 4g.20gb lies at 0 alone: the first three instances of the node go, the last two stay."""
BYSTANDER_START: Final = 6
"""Where the instance lies that a pod holds throughout."""
PREFIX: Final = "gpuscape.io/"
PERMIT: Final = f"{PREFIX}mig-permit"
MOST_SECONDS: Final = 240.0
"""From one phase to another, on a busy machine."""
_CREATE: Final = "nvmlDeviceCreateGpuInstanceWithPlacement"
_STARTS: Final = itertools.count()


def _await(condition: Callable[[], bool]) -> None:
    until(condition, MOST_SECONDS)


class Upgraded(StrEnum):
    """Programs that are replaced together."""

    AGENT = "agent"
    """With its actuator: both are containers of one pod."""
    COORDINATOR = "coordinator"


class ChangePhase(StrEnum):
    """Where a change stops."""

    REQUESTED = "requested"
    """The agent has written a request, and there is no permit: a pod is in the way."""
    CORDONED = "cordoned"
    """The permit says cordoned: a pod is waited for behind the cordon."""
    PERMITTED = "permitted"
    """The permit says proceed, and the actuator, which is paused, has not begun."""
    CHANGING = "changing"
    """Old instances are gone, and the driver hangs in the call that makes the new one."""
    ENDED = "ended"
    """The agent has written the outcome, and the coordinator, which is paused, has undone nothing.
    """


class UpgradedNode:
    """The node, its two pods, and its programs; each program is of the release that it is given."""

    def __init__(
        self, site: Site, name: str, folder: Path, on: SimulatedNode, programs: ExitStack
    ) -> None:
        self.site = site
        self.on = on
        self.name = name
        self.job = f"job-{self.name}"
        self.bystander = f"bystander-{self.name}"
        self._folder = folder
        self._socket = on.folder / "run" / "a.sock"
        self._agent = programs.enter_context(ExitStack())
        self._actuator_stack = programs.enter_context(ExitStack())
        self._coordinator_stack = programs.enter_context(ExitStack())
        self._actuator: ActuatorProcess
        self._coordinator: subprocess.Popen[bytes]
        self._is_paused = False

    # programs

    def start(self, upgraded: Upgraded, program: Path) -> None:
        """Start it, or both of the pod."""
        if upgraded is Upgraded.COORDINATOR:
            process, _ = self._coordinator_stack.enter_context(
                coordinator_process(
                    self.site,
                    f"coordinator-{next(_STARTS)}",
                    self._folder,
                    program=program,
                    **{"cordoned-nodes": "1"},
                )
            )
            self._coordinator = process
            self._coordinator_stack.callback(self._stop_coordinator)
            return
        self._actuator = self._actuator_stack.enter_context(
            started(self.on, self._socket, program=program)
        )
        self._agent.enter_context(
            agent(
                self.site,
                self.name,
                self.on.simulation,
                self._folder,
                options={
                    "GPUSCAPE_MIG_MODE": "enforce",
                    "GPUSCAPE_ACTUATOR_SOCKET": str(self._socket),
                },
                program=program,
            )
        )

    def end(self, upgraded: Upgraded) -> None:
        """End it as a kubelet does: SIGTERM, and SIGKILL where that is of no use."""
        if upgraded is Upgraded.AGENT:
            self._actuator_stack.close()  # SIGKILL, as when the grace period is over
            self._agent.close()
        else:
            self._coordinator_stack.close()

    def _stop_coordinator(self) -> None:
        """It gives its Lease back, so that the next one leads at once; a paused one cannot."""
        if not self._is_paused:
            self._coordinator.terminate()
            self._coordinator.wait(SOON)
        self._is_paused = False

    # the change

    def stop_in(self, phase: ChangePhase) -> None:
        """Have a layout asked for, and wait until its change stands in this phase."""
        self._make_pod(self.bystander)
        is_held = phase in (ChangePhase.REQUESTED, ChangePhase.CORDONED, ChangePhase.PERMITTED)
        if is_held:
            self._make_pod(self.job)
        self._show_holders(self.job if is_held else "")
        if phase in (ChangePhase.CHANGING, ChangePhase.ENDED):
            self.on.simulation.fault(Hang(), _CREATE, times=1)
        drain = "wait" if phase is ChangePhase.REQUESTED else "cordon"
        notes = {f"{PREFIX}drain": drain, f"{PREFIX}mig-layout": LAYOUT}
        self.site.edit(self.name, annotations=notes)
        match phase:
            case ChangePhase.REQUESTED:
                _await(lambda: f"{PREFIX}mig-request" in self.notes())
            case ChangePhase.CORDONED:
                _await(lambda: self._permit_is("cordoned"))
            case ChangePhase.PERMITTED:
                _await(lambda: self._permit_is("cordoned"))
                self._actuator.process.send_signal(signal.SIGSTOP)
                self._end_job()
                _await(lambda: self._permit_is("proceed"))
            case ChangePhase.CHANGING:
                _await(self._is_changing)
            case ChangePhase.ENDED:
                _await(self._is_changing)
                self._coordinator.send_signal(signal.SIGSTOP)
                self._is_paused = True
                self.on.simulation.clear()
                _await(lambda: '"outcome":"applied"' in self.notes()[f"{PREFIX}mig-status"])
        assert (phase is ChangePhase.REQUESTED) != (PERMIT in self.notes())

    def release(self, phase: ChangePhase) -> None:
        """Take away what holds the change in this phase."""
        match phase:
            case ChangePhase.REQUESTED | ChangePhase.CORDONED:
                self._end_job()
            case ChangePhase.PERMITTED:
                self._actuator.process.send_signal(signal.SIGCONT)
            case ChangePhase.CHANGING:
                self.on.simulation.clear()
            case ChangePhase.ENDED:
                self._coordinator.send_signal(signal.SIGCONT)
                self._is_paused = False

    def notes(self) -> dict[str, str]:
        """The Node's annotations."""
        return self.site.annotations(self.name)

    def _permit_is(self, phase: str) -> bool:
        return f'"phase":"{phase}"' in self.notes().get(PERMIT, "")

    def _is_changing(self) -> bool:
        """The status says so, and what has to go is gone."""
        starts = {start for _, start, *_ in self.on.found()}
        is_shown = '"phase":"changing"' in self.notes().get(f"{PREFIX}mig-status", "")
        return is_shown and 0 not in starts

    # pods

    def _make_pod(self, name: str) -> None:
        path = "/api/v1/namespaces/default/pods"
        limits = {"limits": {"nvidia.com/gpu": "1"}}
        spec: Object = {
            "nodeName": self.name,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "i", "resources": limits}],
        }
        self.site.plane.demand("POST", path, {"metadata": {"name": name}, "spec": spec})
        running = {"status": {"phase": "Running", "startTime": "2026-11-25T08:00:00Z"}}
        self.site.plane.demand("PATCH", f"{path}/{name}/status", running, content_type=MERGE_PATCH)

    def _end_job(self) -> None:
        """Its work is over: its owner deletes it, and the kubelet takes the device back."""
        self.site.plane.demand("DELETE", f"/api/v1/namespaces/default/pods/{self.job}")
        self._show_holders("")

    def _show_holders(self, job: str) -> None:
        """The kubelet's checkpoint: the job, if there is one, has an instance that goes."""
        devices = {
            instance.start: instance.compute[0].uuid for instance in self.on.gpus()[0].instances
        }
        held = {self.bystander: [str(devices[BYSTANDER_START])]}
        if job:
            held[job] = [str(devices[0])]
        write_checkpoint(self.on.simulation.host_root, held)


@contextmanager
def upgraded_node(site: Site, folder: Path) -> Iterator[UpgradedNode]:
    """One without any program yet; the actuator's socket needs a short path."""
    name, kubelet = site.plane.make_node(), PodResourcesServer(folder / "sockets")
    kubelet.start()
    try:
        with tempfile.TemporaryDirectory(prefix="upgraded-") as short, ExitStack() as programs:
            yield UpgradedNode(site, name, folder, node(Path(short), *FIVE), programs)
    finally:
        kubelet.stop()
        site.plane.demand("DELETE", f"/api/v1/nodes/{name}")
