# SPDX-License-Identifier: Apache-2.0
"""An admin annotates a MIG layout on a Node; its real agent says there what would come of it, or
has the real actuator change it, with leave that a script gives as the coordinator would."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from actuator.journal import Journal
from api import keys, mig_permit_annotation, mig_request_annotation, mig_status_annotation, names
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import GpuChangeStatus, MigStatusAnnotation
from simulator.simulation import Delay
from tests.actuator.actuator_process import started
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.agent.agent_process import AgentProcess, until
from tests.cluster.agents import Site, agent
from tests.controlplane.plane import MERGE_PATCH
from tests.kubelet_nodes.checkpoint_file import write_checkpoint
from tests.kubelet_nodes.podresources import PodResourcesServer
from tools.access.files import parts_of, text

pytestmark = pytest.mark.cluster


def test_a_layout_on_the_node_is_judged_there_and_no_instance_is_touched(
    site: Site, tmp_path: Path
) -> None:
    on = node(tmp_path, *FIVE)
    name, before = site.plane.make_node(), on.found()

    def status() -> MigStatusAnnotation:
        shown = site.annotations(name).get(keys.MIG_STATUS)
        found = None if shown is None else mig_status_annotation.decode(shown)
        return found or MigStatusAnnotation(v=2, phase="none")

    site.edit(name, labels={keys.MIG_CONFIG: "all-disabled"})
    with agent(site, name, on.simulation, tmp_path) as running:
        until(lambda: status().phase == "unadopted")
        assert "gpuscape_mig_phase" not in running.metrics()
        site.edit(name, annotations={keys.MIG_LAYOUT: '{"0": {"7g.40gb": 2}}'})
        until(lambda: status().phase == "refused")
        assert status().reason.startswith("GPU 0: ")
        until(lambda: "MigLayoutRefused" in reasons(site, name))
        site.edit(name, annotations={keys.MIG_LAYOUT: None}, labels={keys.MIG_CONFIG: "all-1g.5gb"})
        until(lambda: (status().phase, status().desired) == ("planned", "all-1g.5gb"))
        assert status().gpus == (GpuChangeStatus(gpu=0, keep=3, destroy=2, create=4),)
        until(lambda: 'gpuscape_mig_phase{phase="planned"} 1.0' in running.metrics())
    assert on.found() == before


def reasons(site: Site, name: str) -> set[str]:
    """Of the Events about the Node."""
    return {it["reason"] for it in site.plane.events_about(name)}


class Leave:
    """The coordinator's account with the rights that are shipped, and no judgement."""

    def __init__(self, site: Site, name: str) -> None:
        site.plane.account(site.namespace, names.COORDINATOR)
        parts = parts_of(site.namespace)["coordinator"]
        site.plane.kubectl("apply", "-f", "-", stdin=text(parts))
        self._token = site.plane.bound_token(site.namespace, names.COORDINATOR, name)
        self._site = site
        self._name = name

    def request(self) -> MigRequestAnnotation | None:
        found = self._site.annotations(self._name).get(keys.MIG_REQUEST)
        return None if found is None else mig_request_annotation.decode(found)

    def give(self, phase: PermitPhase) -> str:
        """To the request that is there; its id."""
        request = self.request()
        assert request is not None
        permit = MigPermitAnnotation(v=2, request=request.request, phase=phase)
        patch = {
            "metadata": {"annotations": {keys.MIG_PERMIT: mig_permit_annotation.encode(permit)}}
        }
        path = f"/api/v1/nodes/{self._name}?fieldManager={names.COORDINATOR}"
        answer = self._site.plane.request(
            "PATCH", path, patch, token=self._token, content_type=MERGE_PATCH
        )
        assert answer.status == 200, answer.body
        return request.request

    def take_back(self) -> None:
        """People may."""
        self._site.edit(self._name, annotations={keys.MIG_PERMIT: None})


class EnforcingNode:
    """A node whose agent has an actuator; the kubelet's checkpoint says who holds what."""

    def __init__(
        self,
        site: Site,
        folder: Path,
        on: SimulatedNode,
        socket: Path,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._site = site
        self._folder = folder
        self.on = on
        self.name = site.plane.make_node()
        self.pod = site.plane.bound_pod(site.namespace, names.AGENT, self.name)
        self.leave = Leave(site, self.name)
        self._options = {
            "GPUSCAPE_MIG_MODE": "enforce",
            "GPUSCAPE_ACTUATOR_SOCKET": str(socket),
            **(options or {}),
        }
        self.kubelet = PodResourcesServer(folder / "sockets")
        """Has no pods, until it is shown some."""

    def agent(self) -> AbstractContextManager[AgentProcess]:
        """In the same pod each time, as the kubelet restarts a container."""
        return agent(
            self._site,
            self.name,
            self.on.simulation,
            self._folder,
            options=self._options,
            pod=self.pod,
        )

    def ask(self, layout: str | None) -> None:
        self._site.edit(self.name, annotations={keys.MIG_LAYOUT: layout})

    def holds(self, *pods: str) -> None:
        """These have a small instance."""
        small = next(one for one in self.on.gpus()[0].instances if one.profile == "1g.5gb")
        device = small.compute[0].uuid
        assert device is not None
        write_checkpoint(self.on.simulation.host_root, {pod: [device] for pod in pods})

    @property
    def status(self) -> MigStatusAnnotation:
        shown = self._site.annotations(self.name).get(keys.MIG_STATUS)
        found = None if shown is None else mig_status_annotation.decode(shown)
        return found or MigStatusAnnotation(v=2, phase="none")

    @property
    def state(self) -> str | None:
        return self._site.labels(self.name).get(keys.MIG_CONFIG_STATE)

    @property
    def ended(self) -> tuple[str, str]:
        return self.status.request, self.status.outcome

    def profiles(self) -> list[str]:
        return sorted(one for one, *_ in self.on.found())


@pytest.fixture
def enforcing(site: Site, tmp_path: Path) -> Iterator[EnforcingNode]:
    """One with an actuator, whose socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="enforced-") as short:
        on, socket = node(Path(short), *FIVE), Path(short) / "run" / "a.sock"
        made = EnforcingNode(site, tmp_path, on, socket)
        made.kubelet.start()
        try:
            with started(on, socket):
                yield made
        finally:
            made.kubelet.stop()


def test_a_layout_is_changed_with_leave_and_not_before(
    site: Site, enforcing: EnforcingNode
) -> None:
    """Shipped policies hold: the agent writes its request, its status and the state's label."""
    before, leave = enforcing.on.found(), enforcing.leave
    enforcing.holds("job")
    enforcing.ask('{"0": {"7g.40gb": 1}}')
    with enforcing.agent() as running:
        until(lambda: leave.request() is not None)
        asked = leave.request()
        assert asked is not None
        assert (asked.gpus, asked.modes, len(asked.pods)) == ((0,), False, 1)
        assert (enforcing.status.phase, enforcing.status.request) == ("waiting", asked.request)
        assert enforcing.state == "pending"
        enforcing.holds()
        until(lambda: (it := leave.request()) is not None and not it.pods)
        leave.give(PermitPhase.CORDONED)
        assert enforcing.on.found() == before
        assert leave.give(PermitPhase.PROCEED) == asked.request
        until(lambda: enforcing.ended == (asked.request, "applied"))
        assert enforcing.profiles() == ["7g.40gb"]
        assert (enforcing.status.phase, leave.request()) == ("unchanged", None)
        until(lambda: enforcing.state == "success")
        until(lambda: "MigChangeWaiting" in reasons(site, enforcing.name))
        ended = 'gpuscape_mig_requests_ended_total{outcome="applied"} 1.0'
        until(lambda: ended in running.metrics())


@pytest.mark.long
def test_an_agent_that_is_killed_in_a_change_is_followed_by_one_that_tells_the_end(
    enforcing: EnforcingNode,
) -> None:
    """The actuator goes on meanwhile; nothing is done twice."""
    delay = Delay(seconds=8.0)
    enforcing.on.simulation.fault(delay, "nvmlDeviceCreateGpuInstanceWithPlacement", times=1)
    enforcing.holds()
    enforcing.ask('{"0": {"7g.40gb": 1}}')
    with enforcing.agent() as first:
        until(lambda: enforcing.leave.request() is not None)
        request = enforcing.leave.give(PermitPhase.PROCEED)
        until(lambda: not enforcing.on.found())  # the old instances are gone, no new one is there
        first.process.kill()
        first.process.wait()
    with enforcing.agent():
        until(lambda: enforcing.ended == (request, "applied"))
        assert enforcing.profiles() == ["7g.40gb"]
        with Journal(enforcing.on.journal, lock=False) as journal:
            assert [one.change for one in journal.content().ended] == [request]
        enforcing.leave.take_back()
        enforcing.ask(None)
        until(lambda: (enforcing.status.phase, enforcing.state) == ("idle", None))
