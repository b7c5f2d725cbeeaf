# SPDX-License-Identifier: Apache-2.0
"""The dashboard of pods on GPUs, and of what is held in vain."""

from __future__ import annotations

from tools.monitoring.grafana import Bars, Dashboard, Row, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import (
    NAMESPACE_OF_SERIES,
    NODE_OF_SERIES,
    POD_OF_SERIES,
)
from tools.monitoring.panels import (
    GPU_BUS_COLUMN,
    INSTANCE_COLUMN,
    NAMESPACE_COLUMN,
    NODE_COLUMN,
    POD_COLUMN,
    WARNING_IF_ANY,
    graph,
    number,
    ratio,
    ratio_graph,
)
from tools.monitoring.selectors import CLUSTER, INSTANCES, NAMESPACE, POD, ask

_HELD = """group by (cluster, instance, uuid, gpu_instance_id, namespace)
    (gpuscape_pod_gpu_info{@pod})"""
_POD = """group by (cluster, instance, uuid, gpu_instance_id, namespace, pod)
    (gpuscape_pod_gpu_info{@pod})"""
_SHARE = """* @part group_left () (gpuscape_mig_instance_share_ratio{@node}
    or group by (cluster, instance, uuid, gpu_instance_id)
    (gpuscape_pod_gpu_info{@node, gpu_instance_id=""}))"""
"""The part of a GPU that each is: 1 for a whole one."""

_IDLE_HOURS = """sum(
    increase(gpuscape_allocated_idle_seconds_total{@node, gpu_instance_id=""}[$__range])
    or increase(gpuscape_allocated_idle_seconds_total{@node}[$__range])
    * @part gpuscape_mig_instance_share_ratio{@node}) / 3600"""

_NOW = (
    number(
        "Pods with GPUs",
        "Pods with GPUs, of the chosen namespaces and pods.",
        """count(count by (cluster, namespace, pod)
        (gpuscape_pod_gpu_info{@pod}))""",
        width=4,
    ),
    number(
        "GPUs held",
        "GPUs that pods hold. A GPU instance counts as its part of a GPU, a shared GPU once for"
        " each namespace.",
        f"sum({_HELD} {_SHARE})",
        decimals=1,
        width=4,
    ),
    number(
        "Held and idle",
        "GPUs and GPU instances that pods hold and that were idle for 15 minutes.",
        "sum(gpuscape_allocated_idle{@node})",
        width=4,
        steps=WARNING_IF_ANY,
    ),
    ratio(
        "Share of held GPUs that is idle",
        "Average over the nodes that measure it.",
        "avg(gpuscape_allocated_idle_ratio{@node})",
        width=4,
    ),
    number(
        "GPU hours in vain",
        "Held and idle within the time shown; the first 15 minutes of each pause do not count.",
        _IDLE_HOURS,
        unit=Unit.HOURS,
        decimals=1,
        width=4,
    ),
    number(
        "Not measured",
        "GPUs and GPU instances that pods hold and whose activity is not measured, such as all"
        " with MIG on before Hopper.",
        "sum(gpuscape_allocated_unmeasured{@node})",
        width=4,
    ),
)

_NAMESPACES = (
    graph(
        "GPUs held, by namespace",
        "A GPU instance counts as its part of a GPU.",
        f"sum by (namespace) ({_HELD} {_SHARE})",
        "{{namespace}}",
        stacked=True,
        link=NAMESPACE_OF_SERIES,
    ),
    graph(
        "GPUs held and idle, by namespace",
        "Held GPUs that were idle for 15 minutes. A pod that only shares a GPU with other"
        " namespaces counts as well.",
        f"""sum by (namespace) ({_HELD} {_SHARE}
        * @part group_left () gpuscape_allocated_idle{{@node}})""",
        "{{namespace}}",
        stacked=True,
        link=NAMESPACE_OF_SERIES,
    ),
)

_PODS = (
    ratio_graph(
        "Activity by pod",
        "Average activity of the GPUs and GPU instances that each pod holds. A shared GPU counts"
        " for each of its pods. No values for GPU instances before Hopper.",
        f"""avg by (namespace, pod) ({_POD} * @part group_left ()
        (gpuscape_gpu_active_ratio{{@node}}
        or gpuscape_mig_instance_graphics_active_ratio{{@node}}))""",
        "{{namespace}}/{{pod}}",
        link=POD_OF_SERIES,
    ),
    graph(
        "GPU memory by pod",
        "Memory in use on the GPUs and GPU instances that each pod holds. A shared GPU counts for"
        " each of its pods; the table of processes shows them separately.",
        f"sum by (namespace, pod) ({_POD} * @part group_left () (@memory))",
        "{{namespace}}/{{pod}}",
        unit=Unit.BYTES,
        link=POD_OF_SERIES,
    ),
    Table(
        title="Idle pods",
        description="Pods whose GPUs were idle for 15 minutes, and the total idle time.",
        queries=(
            ask(
                """sum by (namespace, pod, instance, pci_bus_id, gpu_instance_id) (
                gpuscape_pod_gpu_info{@pod}
                * @part group_left () (gpuscape_allocated_idle{@node} == 1))"""
            ),
            ask(
                """sum by (namespace, pod, instance, pci_bus_id, gpu_instance_id) (
                gpuscape_pod_gpu_info{@pod}
                * @part group_left () (gpuscape_allocated_idle_seconds_total{@node}
                and gpuscape_allocated_idle{@node} == 1))"""
            ),
        ),
        columns=(
            NAMESPACE_COLUMN,
            POD_COLUMN,
            NODE_COLUMN,
            GPU_BUS_COLUMN,
            INSTANCE_COLUMN,
            Column(label="Value #B", title="Idle", unit=Unit.SECONDS),
        ),
    ),
    Table(
        title="Processes",
        description="Memory of each process, with its pod. Empty unless the agent is configured"
        " to read processes.",
        queries=(
            ask(
                """sum by (namespace, pod, process, instance, pci_bus_id, gpu_instance_id)
                (gpuscape_process_memory_bytes{@pod})"""
            ),
        ),
        columns=(
            NAMESPACE_COLUMN,
            POD_COLUMN,
            Column(label="process", title="Process"),
            NODE_COLUMN,
            GPU_BUS_COLUMN,
            INSTANCE_COLUMN,
            Column(label="Value", title="Memory", unit=Unit.BYTES),
        ),
    ),
)

_ROOM = (
    Bars(
        title="Resources allocated to pods",
        description="Share of each resource's devices that pods have, over all nodes.",
        queries=(
            ask(
                """sum by (resource) (gpuscape_resource_allocated{@node})
                / sum by (resource) (gpuscape_resource_allocatable{@node})""",
                "{{resource}}",
            ),
        ),
        unit=Unit.RATIO,
        maximum=1,
    ),
    ratio_graph(
        "Fragmentation of free GPUs",
        "0 if a node's free GPUs are linked by NVLink as well as this number of GPUs can be.",
        "gpuscape_free_gpus_fragmentation_ratio{@node}",
        "{{instance}}",
        link=NODE_OF_SERIES,
    ),
)

PODS = Dashboard(
    uid="gpuscape-pods",
    title="gpuscape / Pods and waste",
    description="Which pods hold GPUs, how they use them, and which GPUs they hold without use.",
    variables=(CLUSTER, INSTANCES, NAMESPACE, POD),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Namespaces", panels=_NAMESPACES),
        Row(title="Pods", panels=_PODS),
        Row(title="Room", panels=_ROOM),
    ),
)
