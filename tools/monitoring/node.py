# SPDX-License-Identifier: Apache-2.0
"""The dashboard of one node: its links, its GPUs, its agent."""

from __future__ import annotations

from tools.monitoring.grafana import Color, Dashboard, Row, Timeline, Unit, Words
from tools.monitoring.grafana_tables import Column, Matrix, Table
from tools.monitoring.node_faults import FAULTS, PODS_AND_ALERTS
from tools.monitoring.panels import (
    GPU_INDEX_COLUMN,
    activity,
    graph,
    held_by_pods,
    number,
    power,
    ratio_graph,
)
from tools.monitoring.selectors import CLUSTER, GPU, INSTANCE, ask

_GPU_LEGEND = "GPU {{index}}"
_DCGM_LEGEND = "GPU {{gpu}}"

_NUMBERED = """label_replace(label_replace(
    gpuscape_topology_nic_row{@node}, "first", "$1", "nic", "[^0-9]*([0-9]+).*"),
    "last", "$1", "nic", ".*?([0-9]+)[^0-9]*")"""
"""NICs with the numbers in their names as labels: mlx5_2 comes before mlx5_10, and of names made
from the bus, ibp24s0 before ibp206s0."""

_LEVELS = {0: "board", 1: "PIX", 2: "PXB", 3: "PHB", 4: "NODE", 5: "SYS"}
"""How far up two devices meet, in the words of ``nvidia-smi topo -m``."""

_NOW = (
    Words(
        title="GPUs",
        description="Models of the GPUs that answer.",
        queries=(ask("count by (model) (gpuscape_gpu_info{@node})", "{{model}}"),),
        width=6,
        height=4,
    ),
    Words(
        title="Driver",
        description="Version of the driver.",
        queries=(ask("gpuscape_driver_info{@node}", "{{driver_version}}"),),
        width=4,
        height=4,
    ),
    number(
        "GPUs that answer",
        "GPUs that answer, of those that the agent expects.",
        "sum(gpuscape_gpu_up{@node})",
        width=4,
    ),
    held_by_pods(
        "GPUs held by pods",
        "GPUs that pods hold, as a whole or in part. Empty if no kubelet is read.",
    ),
    activity("Average activity of all GPUs."),
    power(width=4),
)

_LINKS = (
    Matrix(
        title="NVLinks between GPUs",
        description="Links that both ends report, direct or through NVSwitch, by index of the"
        " GPUs.",
        queries=(ask("gpuscape_topology_nvlinks_row{@node}"),),
        row="index",
        height=10,
    ),
    Matrix(
        title="PCIe between GPUs",
        description="PCIe level at which two GPUs meet: the darker, the farther apart.",
        queries=(ask("gpuscape_topology_pcie_row{@node}"),),
        row="index",
        words=_LEVELS,
        scheme="continuous-purples",
        height=10,
    ),
    Matrix(
        title="NICs",
        description="PCIe level at which an RDMA NIC and each GPU meet. Empty without such NICs.",
        queries=(ask(_NUMBERED),),
        row="nic",
        rows_by=("first", "last"),
        corner="NIC",
        words=_LEVELS,
        scheme="continuous-purples",
    ),
    graph(
        "NVLink",
        "Data over all links of a GPU, in both directions together.",
        "max by (gpu) (DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{@dcgm}) * 1024000",
        _DCGM_LEGEND,
        unit=Unit.BYTES_PER_SECOND,
    ),
    graph(
        "NVLink errors",
        "Errors over all links of a GPU after which data was sent again or lost.",
        """rate(gpuscape_gpu_nvlink_transfer_errors_total{@node}[$__rate_interval])
        * @index""",
        _GPU_LEGEND,
        unit=Unit.EVENTS_PER_SECOND,
    ),
    Table(
        title="NVLinks that are up",
        description="Links by GPU that are up, and those that are down although other GPUs of the"
        " same model have them up.",
        queries=(
            ask("sum by (index) (gpuscape_gpu_nvlinks_active{@node} * @index)"),
            ask(
                """sum by (index) (
                (gpuscape_gpu_nvlinks_expected{@node} - gpuscape_gpu_nvlinks_active{@node})
                * @index)"""
            ),
        ),
        columns=(
            GPU_INDEX_COLUMN,
            Column(label="Value #A", title="Links", is_bar=True),
            Column(label="Value #B", title="Down"),
        ),
    ),
)

_USE = (
    ratio_graph(
        "Activity",
        "From GPM on Hopper and later, else utilisation. No values for GPUs with MIG on before"
        " Hopper.",
        "gpuscape_gpu_active_ratio{@node} * @index",
        _GPU_LEGEND,
    ),
    graph(
        "GPU memory",
        "Frame buffer in use, all GPU instances included.",
        """sum by (gpu) (max by (gpu, GPU_I_ID) (DCGM_FI_DEV_FB_USED{@dcgm}))
        * 1048576""",
        _DCGM_LEGEND,
        unit=Unit.BYTES,
    ),
    ratio_graph(
        "Tensor cores",
        "Share of the time in which they were active. Hopper and later.",
        "max by (gpu) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{@dcgm})",
        _DCGM_LEGEND,
    ),
    ratio_graph(
        "Memory bandwidth",
        "Share of the maximum bandwidth in use. Hopper and later.",
        "max by (gpu) (DCGM_FI_PROF_DRAM_ACTIVE{@dcgm})",
        _DCGM_LEGEND,
    ),
    graph(
        "SM clock",
        "Clock of the streaming multiprocessors.",
        "max by (gpu) (DCGM_FI_DEV_SM_CLOCK{@dcgm}) * 1000000",
        _DCGM_LEGEND,
        unit=Unit.HERTZ,
    ),
    graph(
        "PCIe",
        "Data in both directions. Hopper and later; no values for GPUs with MIG on.",
        """max by (gpu) (DCGM_FI_PROF_PCIE_RX_BYTES{@dcgm})
        + max by (gpu) (DCGM_FI_PROF_PCIE_TX_BYTES{@dcgm})""",
        _DCGM_LEGEND,
        unit=Unit.BYTES_PER_SECOND,
    ),
)

_HEAT = (
    graph(
        "Power",
        "Power draw of the board.",
        "max by (gpu) (DCGM_FI_DEV_POWER_USAGE{@dcgm})",
        _DCGM_LEGEND,
        unit=Unit.WATTS,
    ),
    graph(
        "Temperature",
        "Temperature of the GPU.",
        "max by (gpu) (DCGM_FI_DEV_GPU_TEMP{@dcgm})",
        _DCGM_LEGEND,
        unit=Unit.CELSIUS,
    ),
    graph(
        "Temperature of memory",
        "Temperature of the memory, on GPUs with HBM.",
        "max by (gpu) (DCGM_FI_DEV_MEMORY_TEMP{@dcgm})",
        _DCGM_LEGEND,
        unit=Unit.CELSIUS,
    ),
    Timeline(
        title="Clocks held down",
        description="When heat or the power brake lowers clocks, by GPU and reason. Empty if"
        " neither does.",
        queries=(
            ask(
                """gpuscape_gpu_clock_event{@node, reason=~"hw_thermal|sw_thermal|hw_power_brake"}
                * @index == 1""",
                "GPU {{index}} {{reason}}",
            ),
        ),
        words={1: ("held down", Color.WARNING)},
    ),
    Table(
        title="Energy",
        description="Energy within the time shown, from the GPU's own meter.",
        queries=(
            ask(
                """max by (gpu) (
                increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{@dcgm}[$__range])) / 3600000000"""
            ),
        ),
        columns=(
            Column(label="gpu", title="GPU", is_number=True),
            Column(label="Value", title="Energy", unit=Unit.KILOWATT_HOURS, is_bar=True),
        ),
    ),
)

_AGENT = (
    graph(
        "Duration of cycles",
        "Average duration of a cycle.",
        """rate(gpuscape_cycle_duration_seconds_sum{@node}[$__rate_interval])
        / rate(gpuscape_cycle_duration_seconds_count{@node}[$__rate_interval])""",
        "{{cycle}}",
        unit=Unit.SECONDS,
        width=8,
    ),
    graph(
        "CPU of the agent",
        "CPU cores in use, by program.",
        "rate(gpuscape_program_cpu_seconds_total{@node}[$__rate_interval])",
        "{{program}}",
        width=8,
    ),
    graph(
        "Memory of the agent",
        "Resident memory, by program.",
        "gpuscape_program_resident_memory_bytes{@node}",
        "{{program}}",
        unit=Unit.BYTES,
        width=8,
    ),
)

NODE = Dashboard(
    uid="gpuscape-node",
    title="gpuscape / Node",
    description="One node: links, use and faults of its GPUs.",
    variables=(CLUSTER, INSTANCE, GPU),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Pods and alerts", panels=PODS_AND_ALERTS),
        Row(title="Links", panels=_LINKS),
        Row(title="Use", panels=_USE),
        Row(title="Power and heat", panels=_HEAT),
        Row(title="Faults", panels=FAULTS),
        Row(title="The agent", panels=_AGENT, collapsed=True),
    ),
)
