# SPDX-License-Identifier: Apache-2.0
"""Real agents on a real API server, each as its DaemonSet would start it on a simulated node."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.cluster.confinement import tried
from api import keys, names
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE, SOON, AgentProcess, until
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.deploy.daemonset import agent_process, daemonset
from tests.kube.clusters import client
from tools.access.files import parts_of, text

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SOCKETS = "/var/lib/kubelet/pod-resources"
STATE = "/var/lib/gpuscape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A namespace with the agent's account, roles and policies, as the manifests make it."""

    plane: Plane
    namespace: str

    @classmethod
    def create(
        cls, plane: Plane, namespace: str | None = None, *, label_keys: Iterable[str] = ()
    ) -> Site:
        """Apply what an admin applies, to a namespace of its own; ``label_keys`` are those of
        rules, which the policies then allow."""
        namespace = namespace or plane.namespace("gpuscape")
        plane.account(namespace, names.AGENT)
        objects = parts_of(namespace, label_keys)["base"]
        plane.kubectl("apply", "-f", "-", stdin=text(objects))
        site = cls(plane=plane, namespace=namespace)
        site.wait_until_enforced()
        return site

    def wait_until_enforced(self) -> None:
        """Wait for the policies: an agent that is faster than they are tries again in a minute."""
        node = self.plane.make_node()
        token = self.plane.bound_token(self.namespace, names.AGENT, node)
        with contextlib.closing(client(names.AGENT, self.plane.kubeconfig(token=token))) as api:
            until(lambda: tried(api, node, self.namespace).confirmed)
        self.plane.demand("DELETE", f"/api/v1/nodes/{node}")

    def node(self, name: str) -> Object:
        """The Node now."""
        return self.plane.demand("GET", f"/api/v1/nodes/{name}")

    def labels(self, name: str) -> dict[str, str]:
        """Its labels."""
        return dict(self.node(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> dict[str, str]:
        """Its annotations."""
        return dict(self.node(name)["metadata"].get("annotations") or {})

    def lease(self, node: str) -> Object | None:
        """The agent's Lease, if there is one."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        answer = self.plane.request("GET", f"{path}/{names.agent_lease(node)}")
        return answer.body if answer.status == 200 else None

    def count_agents(self, agents: int) -> None:
        """Have the shipped DaemonSet, whose status says that it is for so many nodes.

        Here no controller counts them.
        """
        place = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"
        made = daemonset()
        made["metadata"]["namespace"] = self.namespace
        if self.plane.request("GET", f"{place}/{names.AGENT_DAEMON_SET}").status != 200:
            self.plane.demand("POST", place, made)
        numbers = ("currentNumberScheduled", "numberMisscheduled", "numberReady")
        status = {**dict.fromkeys(numbers, 0), "desiredNumberScheduled": agents}
        self.plane.demand(
            "PATCH",
            f"{place}/{names.AGENT_DAEMON_SET}/status",
            {"status": status},
            content_type=MERGE_PATCH,
        )

    def edit(self, node: str, **metadata: Mapping[str, str | None]) -> None:
        """Change labels or annotations of a Node as the admin; None removes."""
        self.plane.demand(
            "PATCH",
            f"/api/v1/nodes/{node}",
            {"metadata": metadata},
            content_type="application/merge-patch+json",
        )


@contextlib.contextmanager
def agent(
    site: Site,
    node: str,
    simulation: Simulation,
    folder: Path,
    *,
    options: Mapping[str, str] | None = None,
    pod: Object | None = None,
    program: Path = GPUSCAPE,
) -> Iterator[AgentProcess]:
    """An agent of this node, ended by SIGTERM at the end.

    ``options``: further settings by variable. ``pod``: its pod, a new one unless given.
    ``program``: gpuscape as installed for another Python, or another state of the project's.
    """
    pod = pod or site.plane.bound_pod(site.namespace, names.AGENT, node)
    token = site.plane.token(site.namespace, names.AGENT, pod=pod)
    address = site.plane.account_folder(folder / "account", site.namespace, token)
    for name in ("sockets", "state"):
        (folder / name).mkdir(exist_ok=True)
    argv, environment = agent_process(
        node=node,
        namespace=site.namespace,
        pod_name=pod["metadata"]["name"],
        pod_uid=pod["metadata"]["uid"],
        mounts={
            ACCOUNT: folder / "account",
            SOCKETS: folder / "sockets",
            STATE: folder / "state",
        },
        extra={
            **address,
            "GPUSCAPE_SIMULATE": str(simulation.state_file),
            "GPUSCAPE_LISTEN": "127.0.0.1:0",
            "GPUSCAPE_PROBE_LISTEN": "127.0.0.1:0",
            "GPUSCAPE_START_SPREAD": "0",
            **(options or {}),
        },
    )
    with subprocess.Popen(
        [str(program), *argv[1:]],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(signal.SIGTERM),
    ) as process:
        try:
            yield AgentProcess(process, simulation)
        finally:
            simulation.clear()
            process.terminate()
            process.wait(SOON)


def has_topology(site: Site, node: str) -> bool:
    """Whether the agent has published its topology on the Node."""
    return keys.TOPOLOGY in site.annotations(node)


def is_scored(site: Site, node: str) -> bool:
    """Whether the agent has published topology and, in its Lease, the GPUs in use."""
    lease = site.lease(node) or {"metadata": {}}
    return has_topology(site, node) and keys.STATE in (lease["metadata"].get("annotations") or {})
