# SPDX-License-Identifier: Apache-2.0
"""All that is known of one Node's MIG change, read once from the cluster. Values only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from fleet.drain.drain_plan import DrainPlan
from fleet.gpu_pod import GpuPod
from fleet.mig_change import ChangeView
from fleet.mig_node import DrainMode, MigNode
from fleet.policy.assigned_layouts import AssignedNode
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, open_changes
from fleet.slot_lease import SlotLease
from fleet.stages.stage import StageName
from fleet.status.coordinator_view import CoordinatorView
from fleet.status.node_layout import NodeLayout
from kube.lease import LeaseSpec
from kube.objects.typed_object import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An Event about the Node. The cluster forgets it after an hour by default."""

    reason: str
    note: str
    at: float
    """Newest time of its series, seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadFact:
    """Objects that could not be read, and the stage whose line says so."""

    stage: StageName
    verb: str
    resource: str
    """Plural as in a role, with its group: ``leases.coordination.k8s.io``."""
    why: str
    is_forbidden: bool = True

    @property
    def text(self) -> str:
        """A sentence that names verb and resource."""
        may = "you may not" if self.is_forbidden else "could not"
        return f"{may} {self.verb} {self.resource}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """The agent of the Node."""

    pod: str = ""
    """``namespace/name``; empty where none is seen."""
    lease: LeaseSpec | None = None
    """None: there is none."""
    is_known: bool = True
    """Whether its Lease could be read."""

    def is_silent(self, now: float) -> bool:
        """Whether it is known not to run: no Lease, or one not renewed within its own duration."""
        return self.is_known and (self.lease is None or self.lease.has_lapsed(now))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The fleet policy, as far as it is about the Node."""

    assigned: AssignedNode | None = None
    """Its state in the policy; None where the policy is not about it."""
    if_removed: AssignedNode | None = None
    """The state that it would have without a desired layout of its own."""
    paused: bool = False
    problem: str = ""
    """Why the policy is not obeyed."""

    @property
    def drain(self) -> DrainMode | None:
        """How pods leave by the policy; None where it does not say so."""
        written = None if self.assigned is None else self.assigned.written
        return None if written is None else written.drain


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChangeFacts:
    """One Node's MIG change, as it was read at one moment."""

    node: MigNode
    metadata: Metadata
    layout: NodeLayout | None
    """None where neither a person nor an agent manages MIG there."""
    desired_by: str = ""
    """Field manager that wrote the desired layout; empty: not known."""
    desired_at: float | None = None
    """The newest write of that manager."""
    fleet: FleetView
    """This node; others that are not available, or change without a record; slots; memory."""
    coordinator: CoordinatorView
    namespace: str
    """The coordinator's."""
    settings: RolloutSettings = field(default_factory=RolloutSettings)
    has_settings: bool = False
    """Whether the coordinator's settings are known; else the defaults stand in for them."""
    agent: AgentFacts = field(default_factory=AgentFacts)
    policy: PolicyFacts = field(default_factory=PolicyFacts)
    drain_plan: DrainPlan | None = None
    """Who would leave, where pods are to be evicted; None: that does not matter now."""
    events: tuple[NodeEvent, ...] = ()
    unread: tuple[UnreadFact, ...] = ()

    @property
    def pods(self) -> Collection[GpuPod]:
        """Pods of the node that hold GPUs or keep them open."""
        return self.fleet.pods.get(self.node.name, ())

    @property
    def plugins(self) -> Collection[GpuPod]:
        """Pods of the device plugin on the node."""
        return [pod for pod in self.pods if pod.is_plugin]

    @property
    def change(self) -> ChangeView | None:
        """The change that the coordinator has open; None: it has none."""
        changes = (change for change in open_changes(self.fleet) if change.node == self.node)
        return next((change for change in changes if change.record.uid == self.node.uid), None)

    @property
    def slot(self) -> SlotLease | None:
        """The Lease with this Node's record; None where there is none."""
        return None if self.change is None else self.change.slot

    @property
    def record(self) -> RollbackRecord | None:
        """Record of the change that the coordinator has open; None: it has none."""
        return None if self.change is None else self.change.record

    def is_unread(self, *resources: str) -> bool:
        """Whether objects of one of these kinds could not be read."""
        return any(fact.resource in resources for fact in self.unread)

    def pod_name(self, key: str) -> str:
        """``namespace/name`` of the pod with this key; the key where it is not known."""
        return next((pod.full_name for pod in self.pods if pod.key == key), key)

    @property
    def coordinator_command(self) -> str:
        """Command that lists the coordinator's pods."""
        label = "app.kubernetes.io/component=coordinator"
        return f"kubectl -n {self.namespace} get pods -l {label}"

    @property
    def restore_command(self) -> str:
        """Command that goes on with a change that is stuck, or gives its GPUs up."""
        return self.agent_command("exec", "-c actuator -- gpuscape mig restore")

    def logs_command(self, container: str) -> str:
        """Command that shows the log of a container of the agent's pod."""
        return self.agent_command("logs", f"-c {container} --tail=50")

    def agent_command(self, verb: str, rest: str) -> str:
        """``kubectl -n NAMESPACE VERB POD REST`` for the agent's pod.

        Where that pod is not known, the command that lists the pods of the node.
        """
        namespace, slash, pod = self.agent.pod.partition("/")
        if not slash:
            return f"kubectl get pods -A -o wide --field-selector spec.nodeName={self.node.name}"
        return f"kubectl -n {namespace} {verb} {pod} {rest}"
