# SPDX-License-Identifier: Apache-2.0
"""The dashboard of MIG changes: which nodes wait, change or are stuck, and what comes of it."""

from __future__ import annotations

from tools.monitoring.grafana import Bars, Color, Dashboard, Graph, Row, Timeline, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import NODE_OF_SERIES
from tools.monitoring.panels import (
    BAD_IF_ANY,
    NODE_COLUMN,
    WARNING_IF_ANY,
    firing_alerts,
    graph,
    number,
)
from tools.monitoring.selectors import CLUSTER, INSTANCES, ask

_PREFIX = "gpuscape_coordinator"


def _phase(phase: str) -> str:
    """Nodes in this phase."""
    return f'count(gpuscape_mig_phase{{@node, phase="{phase}"}} == 1) or vector(0)'


_NOW = (
    number(
        "Nodes asked",
        "Nodes with a desired MIG layout, whose agent reports on it.",
        "count(gpuscape_mig_phase{@node} == 1) or vector(0)",
        width=3,
    ),
    number("As asked", "Nodes that have their desired layout.", _phase("unchanged"), width=3),
    number(
        "Failed",
        "Nodes whose change failed; their agents try again later.",
        _phase("failed"),
        width=3,
        steps=WARNING_IF_ANY,
    ),
    number(
        "Stuck",
        "Nodes that stay cordoned until a person acts.",
        _phase("stuck"),
        width=3,
        steps=BAD_IF_ANY,
    ),
    number(
        "Slots in use",
        "Nodes in change now.",
        f"sum({_PREFIX}_slots_used{{@coordinator}})",
        width=3,
        spark=True,
    ),
    number(
        "Longest wait",
        "Longest wait of all nodes without a slot, for any reason.",
        f"max({_PREFIX}_oldest_wait_seconds{{@coordinator}})",
        unit=Unit.SECONDS,
        width=3,
    ),
    number(
        "Stopped rollouts",
        "Rollouts that stopped after too many failures. A person resumes them.",
        f"sum({_PREFIX}_stopped_rollouts{{@coordinator}})",
        width=3,
        steps=WARNING_IF_ANY,
    ),
    number(
        "Coordinators that act",
        "Active coordinators: one replica of each cluster.",
        f"sum({_PREFIX}_leader{{@coordinator}})",
        width=3,
        steps=((0.0, Color.BAD), (1.0, Color.GOOD)),
    ),
)

_NODES = (
    Table(
        title="Nodes with a slot, and stuck ones",
        description="The step of each node, and for how long. Nodes without a slot: stuck, and"
        " late, whose change has not ended within its time.",
        queries=(
            ask(f"""max by (instance, slot, step) (label_replace({_PREFIX}_change_step_seconds
            {{@coordinator, node=~"$instance"}}, "instance", "$1", "node", "(.+)"))"""),
        ),
        columns=(
            NODE_COLUMN,
            Column(label="slot", title="Slot"),
            Column(label="step", title="Step"),
            Column(label="Value", title="For", unit=Unit.SECONDS),
        ),
    ),
    Table(
        title="Nodes that are not as asked",
        description="Nodes without their desired layout: the phase that the agent reports, and for"
        " how long. `gpuscape mig nodes` has the reason.",
        queries=(
            ask("""max by (cluster, instance, phase)
            (gpuscape_mig_phase{@node, phase!="unchanged"} == 1)
            * on (cluster, instance) group_left ()
            (time() - max by (cluster, instance) (gpuscape_mig_phase_timestamp_seconds{@node}))"""),
        ),
        columns=(
            NODE_COLUMN,
            Column(label="phase", title="Phase"),
            Column(label="Value", title="For", unit=Unit.SECONDS),
        ),
    ),
    graph(
        "Nodes by phase",
        "Nodes with a desired layout, by phase.",
        "count by (phase) (gpuscape_mig_phase{@node} == 1)",
        "{{phase}}",
        stacked=True,
    ),
    firing_alerts(
        'alertname=~"Gpuscape(Mig|Coordinator).+", alertstate="firing", cluster=~"$cluster"',
        column=NODE_COLUMN,
    ),
)

_WAITS = (
    graph(
        "Nodes that wait, by reason",
        "Nodes whose agent requests a change and that have no slot.",
        f"sum by (reason) ({_PREFIX}_waiting_nodes{{@coordinator}}) > 0",
        "{{reason}}",
        stacked=True,
    ),
    graph(
        "Longest wait, by reason",
        "Time since the node that waits longest requested its change.",
        f"max by (reason) ({_PREFIX}_oldest_wait_seconds{{@coordinator}}) > 0",
        "{{reason}}",
        unit=Unit.SECONDS,
    ),
    graph(
        "Nodes with the startup taint, by reason",
        "New nodes that keep pods away until they have their first layout.",
        f"sum by (reason) ({_PREFIX}_startup_taint_nodes{{@coordinator}}) > 0",
        "{{reason}}",
        stacked=True,
    ),
    graph(
        "Longest startup taint, by reason",
        "Age of the oldest startup taint.",
        f"max by (reason) ({_PREFIX}_startup_taint_oldest_seconds{{@coordinator}}) > 0",
        "{{reason}}",
        unit=Unit.SECONDS,
    ),
    Timeline(
        title="What keeps all nodes waiting",
        description="An admin's pause, the time outside the maintenance window, and a fleet policy"
        " that is paused or has a mistake.",
        queries=(
            ask(f"max({_PREFIX}_paused{{@coordinator}})", "paused"),
            ask(
                f"1 - max({_PREFIX}_window_open{{@coordinator}})",
                "outside the window",
            ),
            ask(f"max({_PREFIX}_policy_paused{{@coordinator}})", "policy paused"),
            ask(f"max({_PREFIX}_policy_refused{{@coordinator}})", "policy refused"),
        ),
        words={0: ("no", Color.QUIET), 1: ("yes", Color.WARNING)},
    ),
    graph(
        "Slots",
        "Share of the slots in use.",
        f"sum({_PREFIX}_slots_used{{@coordinator}}) / sum({_PREFIX}_slots{{@coordinator}})",
        "in use",
        unit=Unit.RATIO,
        maximum=1,
    ),
)

_ENDS = (
    graph(
        "Changes by how they ended",
        "Outcomes as the coordinator counts them: rolled-back, stuck, late and"
        " device-plugin-not-registered are failures; untouched changes never began.",
        f"sum by (outcome) (increase({_PREFIX}_changes_total{{@coordinator}}[$__rate_interval]))",
        "{{outcome}}",
        stacked=True,
    ),
    Graph(
        title="Time in change",
        description="Time from taking a slot until cordon, guards and labels are as before: half"
        " of the changes, and nine of ten, took less than this.",
        queries=tuple(
            ask(
                f"""histogram_quantile({share}, sum by (le) (rate(
                {_PREFIX}_change_duration_seconds_bucket{{@coordinator}}[$__rate_interval])))""",
                legend,
            )
            for share, legend in ((0.5, "half"), (0.9, "9 of 10"))
        ),
        unit=Unit.SECONDS,
    ),
    graph(
        "Requests of agents, by how they ended",
        "Cancelled and refused requests changed nothing.",
        "sum by (outcome) (increase(gpuscape_mig_requests_ended_total{@node}[$__rate_interval]))",
        "{{outcome}}",
        stacked=True,
    ),
    Bars(
        title="Nodes that try again and again",
        description="Repeated requests for the same layouts since the agent started: after a"
        " failure, a refusal, or a change by another program.",
        queries=(ask("sum by (instance) (gpuscape_mig_retries_total{@node})", "{{instance}}"),),
        link=NODE_OF_SERIES,
    ),
)

_POLICY = (
    Bars(
        title="Nodes of the fleet policy",
        description="written: the Node has the policy's layout; due: it will be written; own: the"
        " Node has a person's layout; left: no entry selects the Node any more; disputed: entries"
        " with different layouts select it.",
        queries=(
            ask(
                f"sum by (assignment) ({_PREFIX}_policy_nodes{{@coordinator}})",
                "{{assignment}}",
            ),
        ),
    ),
    Bars(
        title="Revision of the fleet policy",
        description="Revision of the policy; documents with the same meaning have the same one."
        " Empty without a policy.",
        queries=(
            ask(f"max by (revision) ({_PREFIX}_policy_info{{@coordinator}})", "{{revision}}"),
        ),
    ),
)

MIG_CHANGES = Dashboard(
    uid="gpuscape-mig-changes",
    title="gpuscape / MIG changes",
    description="MIG layouts of the fleet: nodes that wait and why, nodes in change, outcomes.",
    variables=(CLUSTER, INSTANCES),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Nodes", panels=_NODES),
        Row(title="Waits", panels=_WAITS),
        Row(title="Ends", panels=_ENDS),
        Row(title="Fleet policy", panels=_POLICY),
    ),
)
