"""The dashboard of all nodes together."""

from __future__ import annotations

from tools.monitoring.grafana import (
    Bars,
    Color,
    Dashboard,
    Graph,
    Number,
    Row,
    Unit,
)
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import NODE_OF_CELL, NODE_OF_SERIES, PODS, RUNBOOK_OF_CELL
from tools.monitoring.selectors import CLUSTER, INSTANCES, ask

_BAD_IF_ANY = ((0.0, Color.GOOD), (1.0, Color.BAD))

_NOW = (
    Number(
        title="Nodes",
        description="Nodes with an agent that Prometheus scrapes.",
        queries=(ask("count(count by (cluster, instance) (gpuscape_build_info{@node}))"),),
        width=3,
        height=4,
    ),
    Number(
        title="GPUs",
        description="All GPUs that the agents know of, also those that do not answer.",
        queries=(ask("count(gpuscape_gpu_up{@node})"),),
        width=3,
        height=4,
    ),
    Number(
        title="GPUs down",
        description="GPUs that are lost, hang or cannot be read.",
        queries=(ask("sum(1 - gpuscape_gpu_up{@node})"),),
        width=3,
        height=4,
        steps=_BAD_IF_ANY,
    ),
    Number(
        title="GPUs to check",
        description="GPUs that are degraded or unhealthy; the table below has the reasons.",
        queries=(
            ask(
                """count(gpuscape_gpu_health_info{@node, health=~"degraded|unhealthy"})
                or vector(0)"""
            ),
        ),
        width=3,
        height=4,
        steps=((0.0, Color.GOOD), (1.0, Color.WARNING)),
    ),
    Number(
        title="Held by pods",
        description="GPUs of which pods hold all or a part. Empty where no kubelet is asked.",
        queries=(ask("count(@held) or count(gpuscape_free_gpus{@node}) * 0"),),
        link=PODS,
        width=3,
        height=4,
    ),
    Number(
        title="Free",
        description="GPUs that a pod could get whole now.",
        queries=(ask("sum(gpuscape_free_gpus{@node})"),),
        width=3,
        height=4,
    ),
    Number(
        title="Activity",
        description="How busy GPUs are on average: GPM's word on Hopper and later, else"
        " utilisation. GPUs under MIG before Hopper have no such reading and do not count.",
        queries=(ask("avg(gpuscape_gpu_active_ratio{@node})"),),
        unit=Unit.RATIO,
        decimals=0,
        width=3,
        height=4,
        spark=True,
    ),
    Number(
        title="Power",
        description="Of all GPUs together, each board counted once.",
        queries=(ask("sum(@boards)"),),
        unit=Unit.WATTS,
        width=3,
        height=4,
        spark=True,
    ),
)

_WRONG = (
    Table(
        title="GPUs to check",
        description="Each GPU that is not healthy, and its worst reason.",
        queries=(ask('gpuscape_gpu_health_info{@node, health!="healthy"}'),),
        columns=(
            Column(label="instance", title="Node", link=NODE_OF_CELL),
            Column(label="pci_bus_id", title="GPU"),
            Column(label="health", title="Health"),
            Column(label="reason", title="Reason"),
        ),
    ),
    Table(
        title="XID errors",
        description="By GPU and code, since the agent started.",
        queries=(
            ask("sum by (instance, pci_bus_id, xid) (gpuscape_xid_errors_total{@node})"),
            ask(
                """time() - max by (instance, pci_bus_id, xid)
                (gpuscape_xid_last_timestamp_seconds{@node})"""
            ),
        ),
        columns=(
            Column(label="instance", title="Node", link=NODE_OF_CELL),
            Column(label="pci_bus_id", title="GPU"),
            Column(label="xid", title="XID", is_number=True),
            Column(label="Value #A", title="Errors"),
            Column(label="Value #B", title="Newest, ago", unit=Unit.SECONDS),
        ),
    ),
    Table(
        title="Alerts that fire",
        description="Of gpuscape's rules, where Prometheus has them.",
        queries=(
            ask(
                """max by (alertname, severity, instance)
                (ALERTS{alertname=~"Gpu.+", alertstate="firing", cluster=~"$cluster"})"""
            ),
        ),
        columns=(
            Column(label="severity", title="Severity"),
            Column(label="alertname", title="Alert", link=RUNBOOK_OF_CELL),
            Column(label="instance", title="Node", link=NODE_OF_CELL),
        ),
    ),
    Bars(
        title="NVLinks that are down",
        description="By node: links that are not up, and should be by what other GPUs of the"
        " model have.",
        queries=(
            ask(
                """sum by (instance)
                (gpuscape_gpu_nvlinks_expected{@node} - gpuscape_gpu_nvlinks_active{@node})""",
                "{{instance}}",
            ),
        ),
        steps=_BAD_IF_ANY,
        link=NODE_OF_SERIES,
    ),
)

_USE = (
    Graph(
        title="Activity by node",
        description="How busy the node's GPUs are on average.",
        queries=(ask("avg by (instance) (gpuscape_gpu_active_ratio{@node})", "{{instance}}"),),
        unit=Unit.RATIO,
        most=1,
        link=NODE_OF_SERIES,
    ),
    Graph(
        title="Power by node",
        description="Of all GPUs of the node, each board counted once, whatever MIG does.",
        queries=(ask("sum by (instance) (@boards)", "{{instance}}"),),
        unit=Unit.WATTS,
        stacked=True,
        link=NODE_OF_SERIES,
    ),
    Graph(
        title="GPU memory by node",
        description="Frame buffer in use, of all that the node's GPUs can give, or their GPU"
        " instances where MIG is on.",
        queries=(
            ask(
                """sum by (instance) (@memory)
                / (sum by (instance) (@memory) + sum by (instance) (@room))""",
                "{{instance}}",
            ),
        ),
        unit=Unit.RATIO,
        most=1,
        link=NODE_OF_SERIES,
    ),
    Graph(
        title="Hottest GPUs",
        description="The ten warmest at each moment.",
        queries=(
            ask(
                "topk(10, max by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP{@node}))",
                "{{instance}} GPU {{gpu}}",
            ),
        ),
        unit=Unit.CELSIUS,
        link=NODE_OF_SERIES,
    ),
)

_ROOM = (
    Table(
        title="Room by node",
        description="Free GPUs, the largest set of them in which NVLink joins every pair, and"
        " fragmentation: 0 where they are as well linked as so many could be.",
        queries=(
            ask("sum by (instance) (gpuscape_gpus{@node})"),
            ask(
                """count by (instance) (@held)
                or count by (instance) (gpuscape_free_gpus{@node}) * 0"""
            ),
            ask("sum by (instance) (gpuscape_free_gpus{@node})"),
            ask("max by (instance) (gpuscape_free_gpus_largest_island{@node})"),
            ask("max by (instance) (gpuscape_free_gpus_fragmentation_ratio{@node})"),
        ),
        columns=(
            Column(label="instance", title="Node", link=NODE_OF_CELL),
            Column(label="Value #A", title="GPUs"),
            Column(label="Value #B", title="Held"),
            Column(label="Value #C", title="Free"),
            Column(label="Value #D", title="Largest island"),
            Column(label="Value #E", title="Fragmentation", unit=Unit.RATIO),
        ),
    ),
    Bars(
        title="GPUs by model",
        description="GPUs that answer.",
        queries=(ask("count by (model) (gpuscape_gpu_info{@node})", "{{model}}"),),
        width=6,
    ),
    Bars(
        title="Nodes by driver",
        description="By versions of the driver and the newest CUDA that it supports.",
        queries=(
            ask(
                "count by (driver_version, cuda_version) (gpuscape_driver_info{@node})",
                "{{driver_version}}, CUDA {{cuda_version}}",
            ),
        ),
        width=6,
    ),
)

_AGENTS = (
    Graph(
        title="Age of what agents show",
        description="Time since an agent last looked at its node; some minutes are too many.",
        queries=(ask("gpuscape_snapshot_age_seconds{@node}", "{{instance}}"),),
        unit=Unit.SECONDS,
        link=NODE_OF_SERIES,
    ),
    Graph(
        title="Memory of agents",
        description="Resident memory of an agent with its device reader.",
        queries=(
            ask(
                "sum by (instance) (gpuscape_program_resident_memory_bytes{@node})",
                "{{instance}}",
            ),
        ),
        unit=Unit.BYTES,
        link=NODE_OF_SERIES,
    ),
    Bars(
        title="Sources that do not answer",
        description="By source, the agents that get no answer from it.",
        queries=(ask("sum by (source) (1 - gpuscape_source_up{@node})", "{{source}}"),),
        steps=_BAD_IF_ANY,
    ),
    Bars(
        title="Missing readings",
        description="By reason; unsupported ones are no fault.",
        queries=(ask("sum by (reason) (gpuscape_gaps{@node})", "{{reason}}"),),
    ),
)

FLEET = Dashboard(
    uid="gpuscape-fleet",
    title="gpuscape / Fleet",
    description="All GPU nodes: what is wrong, what is used, what is free.",
    variables=(CLUSTER, INSTANCES),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="What is wrong", panels=_WRONG),
        Row(title="Use", panels=_USE),
        Row(title="Room", panels=_ROOM),
        Row(title="Agents", panels=_AGENTS),
    ),
)
