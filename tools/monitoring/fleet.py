# SPDX-License-Identifier: Apache-2.0
"""The dashboard of all nodes together."""

from __future__ import annotations

from tools.monitoring.grafana import Bars, Dashboard, Row, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import NODE_OF_SERIES, PODS
from tools.monitoring.panels import (
    BAD_IF_ANY,
    GPU_BUS_COLUMN,
    HEALTH_COLUMNS,
    NODE_COLUMN,
    WARNING_IF_ANY,
    activity,
    firing_alerts,
    graph,
    held_by_pods,
    number,
    power,
    ratio_graph,
    xid_errors,
)
from tools.monitoring.selectors import CLUSTER, INSTANCES, ask

_NOW = (
    number(
        "Nodes",
        "Nodes with an agent that Prometheus scrapes.",
        "count(count by (cluster, instance) (gpuscape_build_info{@node}))",
        width=3,
    ),
    number(
        "GPUs",
        "All GPUs that the agents expect, with those that do not answer.",
        "count(gpuscape_gpu_up{@node})",
        width=3,
    ),
    number(
        "GPUs down",
        "GPUs that are lost, hang or cannot be read.",
        "sum(1 - gpuscape_gpu_up{@node})",
        width=3,
        steps=BAD_IF_ANY,
    ),
    number(
        "GPUs to check",
        "GPUs that are degraded or unhealthy; the table below has the reasons.",
        """count(gpuscape_gpu_health_info{@node, health=~"degraded|unhealthy"})
        or vector(0)""",
        width=3,
        steps=WARNING_IF_ANY,
    ),
    held_by_pods(
        "Held by pods",
        "GPUs that pods hold, as a whole or in part. Empty if no kubelet is read.",
        link=PODS,
    ),
    number(
        "Free",
        "GPUs that a pod could get whole now.",
        "sum(gpuscape_free_gpus{@node})",
        width=3,
    ),
    activity(
        "Average activity of the GPUs: from GPM on Hopper and later, else utilisation. GPUs with"
        " MIG on before Hopper have no such reading and do not count."
    ),
    power(width=3),
)

_WRONG = (
    Table(
        title="GPUs to check",
        description="Each GPU that is not healthy, and its worst reason.",
        queries=(ask('gpuscape_gpu_health_info{@node, health!="healthy"}'),),
        columns=(NODE_COLUMN, GPU_BUS_COLUMN, *HEALTH_COLUMNS),
    ),
    xid_errors(NODE_COLUMN, GPU_BUS_COLUMN),
    firing_alerts(
        'alertname=~"Gpu.+", alertstate="firing", cluster=~"$cluster"', column=NODE_COLUMN
    ),
    Bars(
        title="NVLinks that are down",
        description="Links by node that are down, although other GPUs of the same model have them"
        " up.",
        queries=(
            ask(
                """sum by (instance)
                (gpuscape_gpu_nvlinks_expected{@node} - gpuscape_gpu_nvlinks_active{@node})""",
                "{{instance}}",
            ),
        ),
        steps=BAD_IF_ANY,
        link=NODE_OF_SERIES,
    ),
)

_USE = (
    ratio_graph(
        "Activity by node",
        "Average activity of the node's GPUs.",
        "avg by (instance) (gpuscape_gpu_active_ratio{@node})",
        "{{instance}}",
        link=NODE_OF_SERIES,
    ),
    graph(
        "Power by node",
        "Power draw of all GPUs of the node, each board counted once, also with MIG on.",
        "sum by (instance) (@boards)",
        "{{instance}}",
        unit=Unit.WATTS,
        stacked=True,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "GPU memory by node",
        "Share of the frame buffer in use: of the node's GPUs, or of their GPU instances if MIG is"
        " on.",
        """sum by (instance) (@memory)
        / (sum by (instance) (@memory) + sum by (instance) (@room))""",
        "{{instance}}",
        link=NODE_OF_SERIES,
    ),
    graph(
        "Hottest GPUs",
        "The ten hottest GPUs at each moment.",
        "topk(10, max by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP{@node}))",
        "{{instance}} GPU {{gpu}}",
        unit=Unit.CELSIUS,
        link=NODE_OF_SERIES,
    ),
)

_ROOM = (
    Table(
        title="Room by node",
        description="Free GPUs, the largest set of them in which NVLink joins every pair, and"
        " fragmentation: 0 if they are linked as well as this number of GPUs can be.",
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
            NODE_COLUMN,
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
        description="Nodes by driver version and the newest CUDA that it supports.",
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
    graph(
        "Age of what agents show",
        "Time since an agent's last discovery cycle. A few minutes are too long.",
        "gpuscape_snapshot_age_seconds{@node}",
        "{{instance}}",
        unit=Unit.SECONDS,
        link=NODE_OF_SERIES,
    ),
    graph(
        "Memory of agents",
        "Resident memory of an agent with its device reader.",
        "sum by (instance) (gpuscape_program_resident_memory_bytes{@node})",
        "{{instance}}",
        unit=Unit.BYTES,
        link=NODE_OF_SERIES,
    ),
    Bars(
        title="Sources that do not answer",
        description="Agents that get no answer from a source, by source.",
        queries=(ask("sum by (source) (1 - gpuscape_source_up{@node})", "{{source}}"),),
        steps=BAD_IF_ANY,
    ),
    Bars(
        title="Missing readings",
        description="Missing readings by reason; unsupported readings are not a fault.",
        queries=(ask("sum by (reason) (gpuscape_gaps{@node})", "{{reason}}"),),
    ),
)

FLEET = Dashboard(
    uid="gpuscape-fleet",
    title="gpuscape / Fleet",
    description="All GPU nodes: faults, use, free GPUs.",
    variables=(CLUSTER, INSTANCES),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="What is wrong", panels=_WRONG),
        Row(title="Use", panels=_USE),
        Row(title="Room", panels=_ROOM),
        Row(title="Agents", panels=_AGENTS),
    ),
)
