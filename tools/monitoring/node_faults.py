"""Who has a node's GPUs, and what is wrong with them: tables of the node's dashboard."""

from __future__ import annotations

from tools.monitoring.grafana import Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import POD_OF_CELL, RUNBOOK_OF_CELL
from tools.monitoring.selectors import ask

PODS_AND_ALERTS = (
    Table(
        title="Pods",
        description="Which pod holds which GPU, all of it or a GPU instance.",
        queries=(
            ask(
                """max by (index, gpu_instance_id, namespace, pod)
                (gpuscape_pod_gpu_info{@node} * @index)"""
            ),
        ),
        columns=(
            Column(label="index", title="GPU", is_number=True),
            Column(label="gpu_instance_id", title="Instance", is_number=True),
            Column(label="namespace", title="Namespace"),
            Column(label="pod", title="Pod", link=POD_OF_CELL),
        ),
    ),
    Table(
        title="Alerts that fire",
        description="Of gpuscape's rules, where Prometheus has them.",
        queries=(
            ask(
                """max by (alertname, severity, pci_bus_id)
                (ALERTS{@node, alertname=~"Gpu.+", alertstate="firing"})"""
            ),
        ),
        columns=(
            Column(label="severity", title="Severity"),
            Column(label="alertname", title="Alert", link=RUNBOOK_OF_CELL),
            Column(label="pci_bus_id", title="GPU"),
        ),
    ),
)

FAULTS = (
    Table(
        title="Health",
        description="Each GPU, also those that do not answer, and the worst reason.",
        queries=(ask("gpuscape_gpu_health_info{@node}"),),
        columns=(
            Column(label="pci_bus_id", title="GPU"),
            Column(label="health", title="Health"),
            Column(label="reason", title="Reason"),
        ),
    ),
    Table(
        title="Memory",
        description="Errors since the driver was loaded, and rows replaced for good.",
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
            Column(label="index", title="GPU", is_number=True),
            Column(label="Value #A", title="Uncorrected errors"),
            Column(label="Value #B", title="Corrected errors"),
            Column(label="Value #C", title="Rows replaced"),
            Column(label="Value #D", title="Waits for a reset"),
        ),
    ),
    Table(
        title="XID errors",
        description="By GPU and code, since the agent started.",
        queries=(
            ask("sum by (pci_bus_id, xid) (gpuscape_xid_errors_total{@node})"),
            ask(
                """time() - max by (pci_bus_id, xid)
                (gpuscape_xid_last_timestamp_seconds{@node})"""
            ),
        ),
        columns=(
            Column(label="pci_bus_id", title="GPU"),
            Column(label="xid", title="XID", is_number=True),
            Column(label="Value #A", title="Errors"),
            Column(label="Value #B", title="Newest, ago", unit=Unit.SECONDS),
        ),
    ),
    Table(
        title="NVSwitch errors",
        description="By switch and code, where the agent is configured to read the kernel log.",
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
            Column(label="index", title="GPU", is_number=True),
            Column(label="model", title="Model"),
            Column(label="pci_bus_id", title="Bus id"),
            Column(label="numa_node", title="NUMA node"),
            Column(label="vbios_version", title="VBIOS"),
            Column(label="uuid", title="UUID"),
        ),
        width=24,
    ),
)
