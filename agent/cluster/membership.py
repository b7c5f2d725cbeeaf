# SPDX-License-Identifier: Apache-2.0
"""The agent in its cluster: watches its Node, and keeps Node, Lease and NodeFeature up to date.

Nothing is written before the admission policies were seen to hold this agent to its own
node, nor while another agent holds the node's Lease. Any thread may call anything; requests
are made in the ticks alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.cluster.confinement import Confinement, ConfinementCheck, PolicyVerdict
from agent.cluster.feature_sink import FeatureSink
from agent.cluster.gpus_before import GpusBefore
from agent.cluster.heartbeat import Heartbeat
from agent.cluster.node_sink import NodeSink
from agent.cluster.pod_state import PodState
from agent.cluster.release_signals import ReleaseSignals, is_there
from agent.cluster.sink_reports import SinkReports
from agent.cluster.startup_spread import StartupSpread
from agent.layouts.layout_watch import LayoutWatch
from agent.metrics.source_reports import WatchReport
from agent.publish import NodeDecision
from api import keys, names
from base.runtime import Tick
from discovery.model import NodeSnapshot
from exporters.desired_layout_metrics import DesiredLayoutState
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import NODE_FEATURES, NODES, Api, ApiResource, Object
from kube.events import EventBudget, Recorder
from kube.informer import CacheSynced, ObjectGone, ObjectSeen, WatchConnected, WatchEvent, WatchLost
from kube.objects.typed_object import Metadata
from kubelet.allocated_devices import NodeAllocation
from labelers.decision import Absent, Decisions

CAUSES_SECONDS = 1.0
"""Time between two checks of the causes of a release."""
FLUSH_SECONDS = 5.0
"""Time between two flushes of Events."""
GATE_SECONDS = 5.0
"""Time between two checks whether the Lease may be written."""
EVENT_BUDGET = EventBudget(burst=25, refill_seconds=300.0, repeat_seconds=300.0)
SOURCE = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Names of this agent in its cluster."""

    node: str
    namespace: str
    pod: str
    """Name of its pod; of Events it is the reporting instance."""
    identity: str
    """Differs from that of any other agent on the node: its pod's UID."""


class Cluster:
    """Keeps the Node of this agent, its Lease and its NodeFeature up to date."""

    def __init__(
        self,
        api: Api,
        member: Member,
        *,
        sink: str,
        allow_unconfined: bool,
        turn: StartupSpread,
        driver_ready_file: Path,
        update_metrics: Callable[[Callable[[AgentMetrics], None]], None],
        hold: Callable[[tuple[str, ...]], None],
        clear_xids: Callable[[str | None], bool],
        trigger: Callable[[str], None],
        before: GpusBefore,
        layouts: LayoutWatch | None = None,
        rolled_back: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``sink``: where labels go: ``node``, ``nodefeature``, or ``none``, which leaves out the
        topology annotation too. ``turn``: when the agent may begin with what.

        ``update_metrics`` gets changes of the agent's own metrics; ``hold`` gets the causes for
        which the GPUs are to be left alone, none when they no longer are; ``clear_xids`` gets the
        Node's request to clear XIDs again and again, and returns whether it changed anything;
        ``trigger`` runs another tick soon, by its name: one of :attr:`ticks`, ``pods``, which asks
        the kubelet again, or ``discover``. ``before``: what the Node knew of its GPUs when it was
        first seen. ``layouts``: what becomes of a MIG layout that the Node asks for; None: nobody
        looks after that. ``rolled_back`` is called when an answer proves that the API server's
        store was put back to a backup.
        ``clock`` is monotonic, the one of the ticks; ``wall`` is Unix time, only shown.
        """
        self._member = member
        self._ready_file = driver_ready_file
        self._update_metrics = update_metrics
        self._hold = hold
        self._clear_xids = clear_xids
        self._trigger = trigger
        self._clock = clock
        self._before = before
        self._layouts = layouts
        self._decision: NodeDecision | None = None
        off = Absent(reason="nobody looks after MIG layouts")
        self._more: tuple[Decisions, Decisions] = (
            ({}, {keys.MIG_STATUS: off, keys.MIG_REQUEST: off}) if layouts is None else ({}, {})
        )
        """Labels and annotations about MIG layouts as they were handed over last."""
        self._desired_layout: DesiredLayoutState | None = None
        """The MIG layout as it was handed to the metrics last."""
        self._node: Object | None = None
        self._causes: tuple[str, ...] | None = None
        self._sink = sink
        self._was_unconfined = False
        self._watch = WatchReport(update_metrics, SOURCE, wall)
        self._releases = ReleaseSignals(str(driver_ready_file))
        self._events = Recorder(
            api,
            controller=names.AGENT,
            instance=member.pod,
            budget=EVENT_BUDGET,
            dropped=lambda: update_metrics(AgentMetrics.event_dropped),
            clock=clock,
        )
        self._confinement = ConfinementCheck(
            api,
            node=member.node,
            namespace=member.namespace,
            node_features=sink == "nodefeature",
            mig_permits=layouts is not None and layouts.enforces,
            allow_unconfined=allow_unconfined,
            on_change=self._report_confinement,
            uniform=uniform,
        )
        self._heartbeat = Heartbeat(
            api,
            node_name=member.node,
            node=lambda: self._node,
            identity=member.identity,
            namespace=member.namespace,
            rolled_back=rolled_back,
            clock=clock,
            uniform=uniform,
        )
        self._pod_state = PodState(
            self._heartbeat, topology=self._topology, changed=lambda: trigger("lease")
        )
        self._node_sink = NodeSink(
            api,
            member.node,
            may_write=lambda: self._may_write(names.AGENT_NODE),
            reports=self._reports(NODES),
            uniform=uniform,
        )
        self._feature_sink: FeatureSink | None = None
        if sink == "nodefeature":
            self._feature_sink = FeatureSink(
                api,
                member.node,
                namespace=member.namespace,
                may_write=lambda: self._may_write(names.AGENT_NODE_FEATURE),
                reports=self._reports(NODE_FEATURES),
                uniform=uniform,
            )
        self._turn = turn

    @property
    def ticks(self) -> Mapping[str, Tick]:
        """Functions to run again and again, by name."""
        feature = {} if self._feature_sink is None else {"feature": self._feature_sink.tick}
        return {
            "turn": self._turn.ask,
            "causes": self.check_causes,
            "confine": self.confine,
            "lease": self.beat,
            "node": self._node_sink.tick,
            "events": self.flush,
            **feature,
            **({} if self._layouts is None else {"layouts": self.evaluate_layouts}),
        }

    def set_desired(self, decision: NodeDecision) -> None:
        """Have the cluster show this from now on, unless it lacks what the Node knew before."""
        if decision.awaits_record:
            return
        self._decision = decision
        self._report_new_count(decision.annotations)
        self._hand_over(decision)
        self._trigger_all("node", "feature")

    def on_watch_event(self, event: WatchEvent) -> None:
        """Take one event of the watch of the own Node."""
        match event:
            case ObjectSeen(object=node):
                self._node_changed(node)
            case ObjectGone():
                self._node_changed(None)
            case CacheSynced() if self._node is None:  # no such Node: this event alone shows it
                self._node_changed(None)
            case WatchConnected():
                self._node_sink.begin_anew()
                self._watch.connected()
            case WatchLost(error=error):
                self._watch.lost(str(error))

    def show_allocation(self, snapshot: NodeSnapshot, allocation: NodeAllocation) -> None:
        """Show on the Lease who holds which GPU of this snapshot."""
        self._pod_state.show(snapshot, allocation)
        if self._layouts is not None:
            self._layouts.allocated(allocation)

    def leave(self) -> None:
        """Empty the Lease, so that the next agent need not wait; takes 2 s at most."""
        self._heartbeat.leave()

    # ticks

    def check_causes(self, _now: float) -> float:
        """Check what a person or another program asks for; the seconds until the next time."""
        causes = self._releases.causes(self._node, is_there(self._ready_file))
        if self._layouts is not None:
            causes += self._layouts.release_causes
        unknown = self._node is None and not (causes or self._causes)
        if causes != self._causes and not unknown:  # what was asked for before a restart stands
            self._causes = causes
            self._hold(causes)
        if self._node is not None and self._clear_xids(self._annotation(keys.CLEAR_XIDS)):
            self._trigger("discover")
        return CAUSES_SECONDS

    def confine(self, now: float) -> float:
        """Try the admission policies when that is due; the seconds until the next time."""
        if (wait := self._turn.until_confine(now)) > 0:
            return wait
        before = self._believes_permits
        wait = self._confinement.check(now)
        if before is not self._believes_permits and self._node is not None:
            self._show_layouts(self._node)
        self._trigger("lease")
        return wait

    def beat(self, now: float) -> float:
        """Do what is due on the Lease; the seconds until the next time."""
        if (wait := self._turn.until_write(now)) > 0:
            return wait
        if not self._confinement.allows(names.AGENT_LEASE):
            return GATE_SECONDS
        held = self._heartbeat.holds
        wait = self._heartbeat.beat(now)
        holds = self._heartbeat.holds
        if holds and not held:  # what was held back until now is due at once
            self._trigger_all("node", "feature", "pods")
        self._update_metrics(
            lambda own: own.holds_lease(names.agent_lease(self._member.node), holds)
        )
        return wait

    def flush(self, _now: float) -> float:
        """Send Events that wait; the seconds until the next time."""
        if self._may_write(names.AGENT_EVENT):
            self._events.flush()
        return FLUSH_SECONDS

    def evaluate_layouts(self, now: float) -> float:
        """Evaluate the desired MIG layout; the seconds until the next time."""
        if self._layouts is None:
            return GATE_SECONDS
        wait = self._layouts.tick(now)
        if (layout := self._layouts.desired_layout) != self._desired_layout:
            self._desired_layout = layout
            self._update_metrics(lambda own: own.set_desired_layout(layout))
        for event in self._layouts.take_events():
            self._event(event.reason, event.note, warning=event.warning)
        if self._decision is not None and self._about_layouts(self._layouts) != self._more:
            self._hand_over(self._decision)
            self._trigger_all("node")
        return wait

    # parts

    def _hand_over(self, decision: NodeDecision) -> None:
        """Give the sinks what they are to write, the status of MIG layouts included."""
        if self._layouts is not None:
            self._more = self._about_layouts(self._layouts)
        labels = {**decision.labels, **self._more[0]}
        annotations = {**decision.annotations, **self._more[1]}
        if self._sink == "node":
            self._node_sink.set_desired(labels, annotations)
        elif self._feature_sink is not None:
            self._node_sink.set_desired({}, annotations)
            self._feature_sink.set_desired(labels)

    def _about_layouts(self, layouts: LayoutWatch) -> tuple[Decisions, Decisions]:
        """Labels and annotations about MIG layouts.

        A request goes out only where its permit would be believed: a node that is cordoned for one
        that does not begin would have been emptied for nothing.
        """
        annotations = layouts.annotations()
        if not self._believes_permits and self._annotation(keys.MIG_PERMIT) is None:
            off = Absent(reason=f"{names.MIG_PERMIT} is not seen to hold: permits are not acted on")
            annotations = {
                key: off if key == keys.MIG_REQUEST else decision
                for key, decision in annotations.items()
            }
        return layouts.labels(), annotations

    @property
    def _believes_permits(self) -> bool | None:
        """Whether nobody but the coordinator can have written the permit; None: not tried yet."""
        if self._layouts is None or not self._layouts.enforces:
            return True
        if self._confinement.last is None:
            return None
        return self._confinement.allows(names.MIG_PERMIT)

    def _show_layouts(self, node: Object | None) -> None:
        """Have the layouts' watch see the Node, with a permit that can be believed alone."""
        believed = self._believes_permits
        if self._layouts is None or believed is None:
            return
        metadata = None if node is None else node["metadata"]
        if metadata is not None and not believed:
            notes = dict(metadata.get("annotations") or {})
            notes.pop(keys.MIG_PERMIT, None)
            metadata = {**metadata, "annotations": notes}
        self._layouts.observe(metadata)
        if self._decision is not None:
            self._hand_over(self._decision)

    def _may_write(self, policy: str) -> bool:
        """Whether what this policy judges may be written now."""
        return self._confinement.allows(policy) and self._heartbeat.holds

    def _topology(self) -> str | None:
        """The topology annotation as the Node has it."""
        return self._annotation(keys.TOPOLOGY)

    def _annotation(self, key: str) -> str | None:
        """An annotation as the Node has it."""
        if self._node is None:
            return None
        return Metadata.from_object(self._node["metadata"]).annotations.get(key)

    def _report_new_count(self, decided: Decisions) -> None:
        known = self._annotation(keys.KNOWN_GPUS)
        change = self._before.change(known, decided.get(keys.KNOWN_GPUS))
        if change is not None and self._sink != "none":
            self._event("GPUCountChanged", change.note, warning=change.now < change.before)

    def _node_changed(self, node: Object | None) -> None:
        self._node = node
        self._before.observe(self._annotation(keys.KNOWN_GPUS))  # before anything replaces it
        self._show_layouts(node)
        self._node_sink.observe(node)
        if self._feature_sink is not None:
            self._feature_sink.observe(node)
        self._trigger_all("causes", "lease", "layouts", "node", "feature")

    def _trigger_all(self, *ticks: str) -> None:
        missing = {"feature": self._feature_sink is None, "layouts": self._layouts is None}
        for tick in ticks:
            if not missing.get(tick):
                self._trigger(tick)

    def _reports(self, resource: ApiResource) -> SinkReports:
        update = self._update_metrics
        return SinkReports(
            resource.kind,
            event=self._event,
            wrote=lambda: update(lambda own: own.wrote(resource.kind)),
            left_alone=lambda count: update(lambda own: own.left_alone(resource.kind, count)),
            refused=lambda count: update(lambda own: own.keys_refused(resource.kind, count)),
        )

    def _report_confinement(self, confinement: Confinement) -> None:
        def update(own: AgentMetrics) -> None:
            for trial in confinement.trials:
                own.confined(trial.policy, trial.verdict is PolicyVerdict.REFUSED)

        self._update_metrics(update)
        if not confinement.confirmed:
            self._event("NotConfined", confinement.reason)
        elif self._was_unconfined:  # an agent that starts confined needs no Event
            note = "admission policies hold this agent to its node"
            self._event("Confined", note, warning=False)
        self._was_unconfined = not confinement.confirmed

    def _event(self, reason: str, note: str, *, warning: bool = True) -> None:
        if self._node is None:
            return
        meta = self._node["metadata"]
        about = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        self._events.record(about, reason=reason, action="Publish", note=note, warning=warning)
