# SPDX-License-Identifier: Apache-2.0
"""Tables of the node's dashboard: holders and faults of its GPUs."""

from __future__ import annotations

from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.panels import (
    GPU_BUS_COLUMN,
    GPU_INDEX_COLUMN,
    HEALTH_COLUMNS,
    NAMESPACE_COLUMN,
    POD_COLUMN,
    firing_alerts,
    xid_errors,
)
from tools.monitoring.selectors import ask

PODS_AND_ALERTS = (
    Table(
        title="Pods",
        description="Which pod holds which GPU or GPU instance.",
        queries=(
            ask(
                """max by (index, gpu_instance_id, namespace, pod)
                (gpuscape_pod_gpu_info{@node} * @index)"""
            ),
        ),
        columns=(
            GPU_INDEX_COLUMN,
            Column(label="gpu_instance_id", title="Instance", is_number=True),
            NAMESPACE_COLUMN,
            POD_COLUMN,
        ),
    ),
    firing_alerts('@node, alertname=~"Gpu.+", alertstate="firing"', column=GPU_BUS_COLUMN),
)

FAULTS = (
    Table(
        title="Health",
        description="Each GPU, with those that do not answer, and its worst reason.",
        queries=(ask("gpuscape_gpu_health_info{@node}"),),
        columns=(GPU_BUS_COLUMN, *HEALTH_COLUMNS),
    ),
    Table(
        title="Memory",
        description="Errors since the driver was loaded, and rows replaced permanently.",
        queries=(
            ask(
                """sum by (index) (gpuscape_gpu_ecc_errors_total{@node, error="uncorrected"}
                * @index)"""
            ),
            ask(
                """sum by (index) (gpuscape_gpu_ecc_errors_total{@node, error="corrected"}
                * @index)"""
            ),
            ask("sum by (index) (gpuscape_gpu_remapped_rows_total{@node} * @index)"),
            ask("sum by (index) (gpuscape_gpu_row_remap_pending{@node} * @index)"),
        ),
        columns=(
            GPU_INDEX_COLUMN,
            Column(label="Value #A", title="Uncorrected errors"),
            Column(label="Value #B", title="Corrected errors"),
            Column(label="Value #C", title="Rows replaced"),
            Column(label="Value #D", title="Waits for a reset"),
        ),
    ),
    xid_errors(GPU_BUS_COLUMN),
    Table(
        title="NVSwitch errors",
        description="Errors by switch and code, if the agent is configured to read the kernel log.",
        queries=(
            ask("sum by (pci_bus_id, sxid, severity) (gpuscape_nvswitch_errors_total{@node})"),
        ),
        columns=(
            Column(label="pci_bus_id", title="Switch"),
            Column(label="sxid", title="SXid", is_number=True),
            Column(label="severity", title="Severity"),
            Column(label="Value", title="Errors"),
        ),
    ),
    Table(
        title="What the GPUs are",
        description="Facts about the GPUs that answer.",
        queries=(ask("gpuscape_gpu_info{@node}"),),
        columns=(
            GPU_INDEX_COLUMN,
            Column(label="model", title="Model"),
            Column(label="pci_bus_id", title="Bus id"),
            Column(label="numa_node", title="NUMA node"),
            Column(label="vbios_version", title="VBIOS"),
            Column(label="uuid", title="UUID"),
        ),
        width=24,
    ),
)
