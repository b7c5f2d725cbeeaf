# SPDX-License-Identifier: Apache-2.0
"""The dashboard of MIG changes: which nodes wait, change or are held, and what comes of it."""

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
        "Nodes that are asked for a MIG layout, and whose agent looks after it.",
        "count(gpuscape_mig_phase{@node} == 1) or vector(0)",
        width=3,
    ),
    number("As asked", "Nodes that have the layout.", _phase("unchanged"), width=3),
    number(
        "Failed",
        "Nodes whose change failed; their agents try again later.",
        _phase("failed"),
        width=3,
        steps=WARNING_IF_ANY,
    ),
    number(
        "Held",
        "Nodes that stay cordoned until a person acts.",
        _phase("held"),
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
        "Of all nodes that have no slot, for whatever reason.",
        f"max({_PREFIX}_oldest_wait_seconds{{@coordinator}})",
        unit=Unit.SECONDS,
        width=3,
    ),
    number(
        "Stopped rollouts",
        "After too many failures: a person lets them go on.",
        f"sum({_PREFIX}_stopped_rollouts{{@coordinator}})",
        width=3,
        steps=WARNING_IF_ANY,
    ),
    number(
        "Coordinators that act",
        "One of the replicas of each cluster does.",
        f"sum({_PREFIX}_leader{{@coordinator}})",
        width=3,
        steps=((0.0, Color.BAD), (1.0, Color.GOOD)),
    ),
)

_NODES = (
    Table(
        title="Nodes with a slot, and held ones",
        description="At which step each is, and for how long. Without a slot: held, and late, which"
        " has no end within its time.",
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
        description="By the phase that their agents report, and for how long. The reason is in"
        " `gpuscape mig nodes`.",
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
        "Those that are asked for a layout.",
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
        "Nodes whose agent asks for a change, and that have no slot.",
        f"sum by (reason) ({_PREFIX}_waiting_nodes{{@coordinator}}) > 0",
        "{{reason}}",
        stacked=True,
    ),
    graph(
        "Longest wait, by reason",
        "Since the node that waits longest asked for its change.",
        f"max by (reason) ({_PREFIX}_oldest_wait_seconds{{@coordinator}}) > 0",
        "{{reason}}",
        unit=Unit.SECONDS,
    ),
    graph(
        "Nodes with the startup taint, by reason",
        "New nodes that keep pods away until their first layout is there.",
        f"sum by (reason) ({_PREFIX}_startup_taint_nodes{{@coordinator}}) > 0",
        "{{reason}}",
        stacked=True,
    ),
    graph(
        "Longest startup taint, by reason",
        "For how long the node that has it longest keeps pods away.",
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
        "In use, of those that there are.",
        f"sum({_PREFIX}_slots_used{{@coordinator}}) / sum({_PREFIX}_slots{{@coordinator}})",
        "in use",
        unit=Unit.RATIO,
        maximum=1,
    ),
)

_ENDS = (
    graph(
        "Changes by how they ended",
        "As the coordinator counts them: previous, held, late and device-plugin-not-registered are"
        " failures; untouched ones never began.",
        f"sum by (outcome) (increase({_PREFIX}_changes_total{{@coordinator}}[$__rate_interval]))",
        "{{outcome}}",
        stacked=True,
    ),
    Graph(
        title="Time in change",
        description="From taking a slot to the end of the undoing: half and nine of ten took less.",
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
        "Cancelled and refused ones touched nothing.",
        "sum by (end) (increase(gpuscape_mig_requests_ended_total{@node}[$__rate_interval]))",
        "{{end}}",
        stacked=True,
    ),
    Bars(
        title="Nodes that try again and again",
        description="Requests for the same layouts as the one before since the agent started, after"
        " a failure, a refusal, or a change by another program.",
        queries=(ask("sum by (instance) (gpuscape_mig_retries_total{@node})", "{{instance}}"),),
        link=NODE_OF_SERIES,
    ),
)

_POLICY = (
    Bars(
        title="Nodes of the fleet policy",
        description="written: as the policy has it; due: to be written; own: a person's layout"
        " stands there; left: no entry selects it any more; disputed: entries with different"
        " layouts do.",
        queries=(
            ask(
                f"sum by (assignment) ({_PREFIX}_policy_nodes{{@coordinator}})",
                "{{assignment}}",
            ),
        ),
    ),
    Bars(
        title="Revision of the fleet policy",
        description="The same for documents that mean the same. Empty without a policy.",
        queries=(
            ask(f"max by (revision) ({_PREFIX}_policy_info{{@coordinator}})", "{{revision}}"),
        ),
    ),
)

MIG_CHANGES = Dashboard(
    uid="gpuscape-mig-changes",
    title="gpuscape / MIG changes",
    description="MIG layouts of the fleet: who waits and why, who is in change, what came of it.",
    variables=(CLUSTER, INSTANCES),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Nodes", panels=_NODES),
        Row(title="Waits", panels=_WAITS),
        Row(title="Ends", panels=_ENDS),
        Row(title="Fleet policy", panels=_POLICY),
    ),
)
