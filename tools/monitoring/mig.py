# SPDX-License-Identifier: Apache-2.0
"""The dashboard of GPU instances."""

from __future__ import annotations

from tools.monitoring.grafana import Bars, Color, Dashboard, Row, Timeline, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import NODE_OF_SERIES
from tools.monitoring.panels import (
    GPU_INDEX_COLUMN,
    NODE_COLUMN,
    WARNING_IF_ANY,
    graph,
    number,
    ratio,
    ratio_graph,
)
from tools.monitoring.selectors import CLUSTER, GPU, INSTANCES, ask

_LEGEND = "{{instance}} GPU {{index}} instance {{gpu_instance_id}}"

_NOW = (
    number(
        "GPUs with MIG on",
        "GPUs with MIG on, with or without instances. No pod can use a GPU with MIG on and no"
        " instance.",
        "sum(gpuscape_gpu_mig_enabled{@node} * @index)",
        width=4,
    ),
    number(
        "GPU instances",
        "GPU instances, each counted once.",
        "count(gpuscape_mig_instance_info{@node} * @index)",
        width=4,
    ),
    number(
        "Held by pods",
        "Instances that a pod holds, as a whole or in part.",
        "sum(gpuscape_mig_instance_allocated{@node} * @index)",
        width=4,
    ),
    ratio(
        "Slices cut off",
        "Share of the compute slices of GPUs with MIG on that belong to no instance. No pod can"
        " use them with this layout.",
        """1 - sum(gpuscape_mig_instance_share_ratio{@node} * @index)
        / sum(gpuscape_gpu_mig_enabled{@node} * @index)""",
        width=4,
    ),
    ratio(
        "Memory in use",
        "Share of the memory in use, over all instances.",
        """sum(gpuscape_mig_instance_memory_used_bytes{@node} * @index)
        / sum(gpuscape_mig_instance_memory_bytes{@node} * @index)""",
        width=4,
    ),
    number(
        "Changes that wait",
        "GPUs whose MIG mode was changed and that wait for a reset.",
        "sum(gpuscape_gpu_mig_change_pending{@node} * @index) or vector(0)",
        width=4,
        steps=WARNING_IF_ANY,
    ),
)

_LAYOUT = (
    Table(
        title="Instances",
        description="Each instance, its use, and whether a pod holds it. Activity comes from GPM,"
        " on Hopper and later.",
        queries=(
            ask("""sum by (instance, index, gpu_instance_id, profile, placement_start)
                (gpuscape_mig_instance_info{@node} * @index)"""),
            ask("""sum by (instance, index, gpu_instance_id)
                (gpuscape_mig_instance_memory_used_bytes{@node} * @index)"""),
            ask("""sum by (instance, index, gpu_instance_id)
                (gpuscape_mig_instance_memory_bytes{@node} * @index)"""),
            ask("""sum by (instance, index, gpu_instance_id)
                (gpuscape_mig_instance_graphics_active_ratio{@node} * @index)"""),
            ask("""sum by (instance, index, gpu_instance_id)
                (gpuscape_mig_instance_allocated{@node} * @index)"""),
        ),
        columns=(
            NODE_COLUMN,
            GPU_INDEX_COLUMN,
            Column(label="gpu_instance_id", title="Instance", is_number=True),
            Column(label="profile", title="Profile"),
            Column(label="placement_start", title="Starts at"),
            Column(label="Value #B", title="Memory in use", unit=Unit.BYTES),
            Column(label="Value #C", title="Memory", unit=Unit.BYTES),
            Column(label="Value #D", title="Activity", unit=Unit.RATIO),
            Column(label="Value #E", title="Held"),
        ),
        width=16,
        height=10,
    ),
    Bars(
        title="Instances by profile",
        description="All instances, by profile.",
        queries=(
            ask("count by (profile) (gpuscape_mig_instance_info{@node} * @index)", "{{profile}}"),
        ),
        width=8,
        height=10,
    ),
)

_USE = (
    ratio_graph(
        "Memory of instances",
        "Share of the instance's frame buffer in use.",
        """gpuscape_mig_instance_memory_used_bytes{@node}
        / gpuscape_mig_instance_memory_bytes{@node} * @index""",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Activity of instances",
        "Share of the time in which anything ran. Hopper and later: older GPUs do not measure the"
        " activity of an instance.",
        "gpuscape_mig_instance_graphics_active_ratio{@node} * @index",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Tensor cores of instances",
        "Share of the time in which they were active. Hopper and later.",
        'gpuscape_mig_instance_pipe_active_ratio{@node, pipe="tensor"} * @index',
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Memory bandwidth of instances",
        "Share of the maximum bandwidth in use. Hopper and later.",
        "gpuscape_mig_instance_memory_bandwidth_ratio{@node} * @index",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    Timeline(
        title="Instances held by pods",
        description="Whether a pod holds each instance, over time.",
        queries=(ask("gpuscape_mig_instance_allocated{@node} * @index", _LEGEND),),
        words={0: ("free", Color.QUIET), 1: ("held", Color.NEUTRAL)},
        link=NODE_OF_SERIES,
    ),
    graph(
        "Power of GPUs with MIG on",
        "Power draw of whole boards: the part of an instance is not measured, and sums over"
        " DCGM_FI_DEV_POWER_USAGE count a board once for each instance.",
        """label_replace(@boards, "uuid", "$1", "UUID", "(.+)") * @index
        and @gpu gpuscape_gpu_mig_enabled{@node} == 1""",
        "{{instance}} GPU {{index}}",
        unit=Unit.WATTS,
        link=NODE_OF_SERIES,
    ),
)

MIG = Dashboard(
    uid="gpuscape-mig",
    title="gpuscape / MIG",
    description="GPU instances: how GPUs are split, and how the parts are used.",
    variables=(CLUSTER, INSTANCES, GPU),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Layout", panels=_LAYOUT),
        Row(title="Use", panels=_USE),
    ),
)
