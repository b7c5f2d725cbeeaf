"""The dashboard of one node: its links, its GPUs, its agent."""

from __future__ import annotations

from tools.monitoring.grafana import (
    Color,
    Dashboard,
    Graph,
    Number,
    Row,
    Timeline,
    Unit,
    Words,
)
from tools.monitoring.grafana_tables import Column, Matrix, Table
from tools.monitoring.node_faults import FAULTS, PODS_AND_ALERTS
from tools.monitoring.selectors import CLUSTER, GPU, INSTANCE, ask

_GPU_LEGEND = "GPU {{index}}"
_DCGM_LEGEND = "GPU {{gpu}}"

_ITSELF = """or max by (index, peer_index) (label_replace(
    gpuscape_gpu_info{@node} * NaN, "peer_index", "$1", "index", "(.+)"))"""
"""The diagonal, shown as a dot: a GPU is there also where nothing is linked to it."""

_NUMBERED = """label_replace(label_replace(
    gpuscape_topology_nic_pcie_level{@node}, "first", "$1", "nic", "[^0-9]*([0-9]+).*"),
    "last", "$1", "nic", ".*?([0-9]+)[^0-9]*")"""
"""NICs with the numbers in their names as labels: mlx5_2 comes before mlx5_10, and of names made
from the bus, ibp24s0 before ibp206s0."""

_LEVELS = {0: "board", 1: "PIX", 2: "PXB", 3: "PHB", 4: "NODE", 5: "SYS"}
"""How far up two devices meet, in the words of ``nvidia-smi topo -m``."""

_NOW = (
    Words(
        title="GPUs",
        description="Models that answer.",
        queries=(ask("count by (model) (gpuscape_gpu_info{@node})", "{{model}}"),),
        width=6,
        height=4,
    ),
    Words(
        title="Driver",
        description="Its version.",
        queries=(ask("gpuscape_driver_info{@node}", "{{driver_version}}"),),
        width=4,
        height=4,
    ),
    Number(
        title="GPUs that answer",
        description="Of those that the agent knows of.",
        queries=(ask("sum(gpuscape_gpu_up{@node})"),),
        width=4,
        height=4,
    ),
    Number(
        title="GPUs held by pods",
        description="All of them or a part. Empty where no kubelet is asked.",
        queries=(ask("sum(gpuscape_gpu_allocated{@node})"),),
        width=3,
        height=4,
    ),
    Number(
        title="Activity",
        description="Of all GPUs on average.",
        queries=(ask("avg(@active)"),),
        unit=Unit.RATIO,
        decimals=0,
        width=3,
        height=4,
        spark=True,
    ),
    Number(
        title="Power",
        description="Of all GPUs together, each board counted once.",
        queries=(ask("sum(gpuscape_gpu_power_watts{@node})"),),
        unit=Unit.WATTS,
        width=4,
        height=4,
        spark=True,
    ),
)

_LINKS = (
    Matrix(
        title="NVLinks between GPUs",
        description="Links that both ends see, direct or through NVSwitch, by index of the GPUs.",
        queries=(ask("max by (index, peer_index) (gpuscape_topology_nvlinks{@node}) " + _ITSELF),),
        rows="index",
        columns="peer_index",
        height=10,
    ),
    Matrix(
        title="PCIe between GPUs",
        description="How far up two GPUs meet: the darker, the farther.",
        queries=(
            ask("max by (index, peer_index) (gpuscape_topology_pcie_level{@node}) " + _ITSELF),
        ),
        rows="index",
        columns="peer_index",
        words=_LEVELS,
        scheme="continuous-purples",
        height=10,
    ),
    Matrix(
        title="State of NVLinks",
        description="By GPU and number of the link. Links can be unused by design, as on GPUs"
        " without a bridge.",
        queries=(ask("max by (index, link) (gpuscape_nvlink_up{@node} * @index)"),),
        rows="index",
        columns="link",
        words={0: "down", 1: "up"},
        scheme="continuous-RdYlGr",
    ),
    Matrix(
        title="NICs",
        description="How far up a GPU and an RDMA NIC meet on PCIe. Empty without such NICs.",
        queries=(ask(f"max by (index, nic, first, last) ({_NUMBERED})"),),
        rows="index",
        columns="nic",
        columns_by=("first", "last"),
        words=_LEVELS,
        scheme="continuous-purples",
    ),
    Graph(
        title="NVLink, received",
        description="Data over all links of a GPU.",
        queries=(
            ask(
                "rate(gpuscape_gpu_nvlink_received_bytes_total{@node}[$__rate_interval]) * @index",
                _GPU_LEGEND,
            ),
        ),
        unit=Unit.BYTES_PER_SECOND,
    ),
    Graph(
        title="NVLink, sent",
        description="Data over all links of a GPU.",
        queries=(
            ask(
                "rate(gpuscape_gpu_nvlink_sent_bytes_total{@node}[$__rate_interval]) * @index",
                _GPU_LEGEND,
            ),
        ),
        unit=Unit.BYTES_PER_SECOND,
    ),
    Graph(
        title="NVLink errors",
        description="Errors and recoveries over all links of a GPU; kinds differ with the"
        " generation of NVLink.",
        queries=(
            ask(
                """sum by (cluster, instance, uuid, error) (
                rate(gpuscape_gpu_nvlink_errors_total{@node}[$__rate_interval])
                or rate(gpuscape_nvlink_errors_total{@node}[$__rate_interval])) * @index""",
                "GPU {{index}} {{error}}",
            ),
        ),
    ),
    Table(
        title="NVLinks that are up",
        description="By GPU.",
        queries=(ask("gpuscape_gpu_nvlinks_active{@node} * @index"),),
        columns=(
            Column(label="index", title="GPU", is_number=True),
            Column(label="Value", title="Links", is_bar=True),
        ),
    ),
)

_USE = (
    Graph(
        title="Activity",
        description="By GPM's word on Hopper and later, else utilisation. Nothing of GPUs under"
        " MIG before Hopper.",
        queries=(ask("(@active) * @index", _GPU_LEGEND),),
        unit=Unit.RATIO,
        most=1,
    ),
    Graph(
        title="GPU memory",
        description="Frame buffer in use, that of all GPU instances included.",
        queries=(ask("gpuscape_gpu_memory_used_bytes{@node} * @index", _GPU_LEGEND),),
        unit=Unit.BYTES,
    ),
    Graph(
        title="Tensor cores",
        description="Share of the time for which they worked. Hopper and later.",
        queries=(ask("max by (gpu) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{@dcgm})", _DCGM_LEGEND),),
        unit=Unit.RATIO,
        most=1,
    ),
    Graph(
        title="Memory bandwidth",
        description="In use, of the most there is. Hopper and later.",
        queries=(ask("max by (gpu) (DCGM_FI_PROF_DRAM_ACTIVE{@dcgm})", _DCGM_LEGEND),),
        unit=Unit.RATIO,
        most=1,
    ),
    Graph(
        title="SM clock",
        description="Clock of the streaming multiprocessors.",
        queries=(ask("max by (gpu) (DCGM_FI_DEV_SM_CLOCK{@dcgm}) * 1000000", _DCGM_LEGEND),),
        unit=Unit.HERTZ,
    ),
    Graph(
        title="PCIe",
        description="Data in both directions.",
        queries=(
            ask(
                """(rate(gpuscape_gpu_pcie_received_bytes_total{@node}[$__rate_interval])
                + rate(gpuscape_gpu_pcie_sent_bytes_total{@node}[$__rate_interval])) * @index""",
                _GPU_LEGEND,
            ),
        ),
        unit=Unit.BYTES_PER_SECOND,
    ),
)

_HEAT = (
    Graph(
        title="Power",
        description="What the board draws.",
        queries=(ask("max by (gpu) (DCGM_FI_DEV_POWER_USAGE{@dcgm})", _DCGM_LEGEND),),
        unit=Unit.WATTS,
    ),
    Graph(
        title="Temperature",
        description="Of the GPU.",
        queries=(ask("max by (gpu) (DCGM_FI_DEV_GPU_TEMP{@dcgm})", _DCGM_LEGEND),),
        unit=Unit.CELSIUS,
    ),
    Graph(
        title="Temperature of memory",
        description="GPUs with HBM.",
        queries=(ask("max by (gpu) (DCGM_FI_DEV_MEMORY_TEMP{@dcgm})", _DCGM_LEGEND),),
        unit=Unit.CELSIUS,
    ),
    Timeline(
        title="Clocks held down",
        description="By GPU and reason, while it lasts; that a GPU is idle is left out. Empty where"
        " nothing holds clocks down.",
        queries=(
            ask(
                'gpuscape_gpu_clock_event{@node, reason!="gpu_idle"} * @index == 1',
                "GPU {{index}} {{reason}}",
            ),
        ),
        words={1: ("held down", Color.WARNING)},
    ),
    Graph(
        title="Time with clocks held down",
        description="Share of the time on the GPU that is held down most, by what did it; causes"
        " overlap.",
        queries=(
            ask(
                """max by (cause) (
                rate(gpuscape_gpu_held_down_seconds_total{@node}[$__rate_interval]) * @index)""",
                "{{cause}}",
            ),
        ),
        unit=Unit.RATIO,
    ),
    Table(
        title="Energy",
        description="Used within the time shown, by the GPU's own meter.",
        queries=(
            ask("increase(gpuscape_gpu_energy_joules_total{@node}[$__range]) / 3600000 * @index"),
        ),
        columns=(
            Column(label="index", title="GPU", is_number=True),
            Column(label="Value", title="Energy", unit=Unit.KILOWATT_HOURS, is_bar=True),
        ),
    ),
)

_AGENT = (
    Graph(
        title="Duration of cycles",
        description="99 of 100 cycles took less.",
        queries=(
            ask(
                """histogram_quantile(0.99, sum by (cycle, le)
                (rate(gpuscape_cycle_duration_seconds_bucket{@node}[$__rate_interval])))""",
                "{{cycle}}",
            ),
        ),
        unit=Unit.SECONDS,
        width=8,
    ),
    Graph(
        title="CPU of the agent",
        description="Cores, by program.",
        queries=(
            ask(
                "rate(gpuscape_program_cpu_seconds_total{@node}[$__rate_interval])",
                "{{program}}",
            ),
        ),
        width=8,
    ),
    Graph(
        title="Memory of the agent",
        description="Resident, by program.",
        queries=(ask("gpuscape_program_resident_memory_bytes{@node}", "{{program}}"),),
        unit=Unit.BYTES,
        width=8,
    ),
)

NODE = Dashboard(
    uid="gpuscape-node",
    title="gpuscape / Node",
    description="One node: how its GPUs are linked, what they do, what is wrong with them.",
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
