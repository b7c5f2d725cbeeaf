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
        "Split or not: one with MIG on and no instance serves nobody.",
        "sum(gpuscape_gpu_mig_enabled{@node} * @index)",
        width=4,
    ),
    number(
        "GPU instances",
        "Each counted once.",
        "count(gpuscape_mig_instance_info{@node} * @index)",
        width=4,
    ),
    number(
        "Held by pods",
        "Instances that a pod holds, all or a part.",
        "sum(gpuscape_mig_instance_allocated{@node} * @index)",
        width=4,
    ),
    ratio(
        "Slices cut off",
        "Share of the compute slices of GPUs with MIG on that no instance has: nobody"
        " can use them as the layout is.",
        """1 - sum(gpuscape_mig_instance_share_ratio{@node} * @index)
        / sum(gpuscape_gpu_mig_enabled{@node} * @index)""",
        width=4,
    ),
    ratio(
        "Memory in use",
        "Of all instances together.",
        """sum(gpuscape_mig_instance_memory_used_bytes{@node} * @index)
        / sum(gpuscape_mig_instance_memory_bytes{@node} * @index)""",
        width=4,
    ),
    number(
        "Changes that wait",
        "GPUs whose MIG mode was switched, and that wait for a reset.",
        "sum(gpuscape_gpu_mig_change_pending{@node} * @index) or vector(0)",
        width=4,
        steps=WARNING_IF_ANY,
    ),
)

_LAYOUT = (
    Table(
        title="Instances",
        description="What each instance is, what it uses, and who holds it. Activity is measured"
        " by GPM, on Hopper and later.",
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
        description="All that there are.",
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
        "Frame buffer in use, of what the instance has.",
        """gpuscape_mig_instance_memory_used_bytes{@node}
        / gpuscape_mig_instance_memory_bytes{@node} * @index""",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Activity of instances",
        "Share of the time for which anything ran. Hopper and later: before, nothing"
        " measures how busy an instance is.",
        "gpuscape_mig_instance_graphics_active_ratio{@node} * @index",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Tensor cores of instances",
        "Share of the time for which they worked. Hopper and later.",
        'gpuscape_mig_instance_pipe_active_ratio{@node, pipe="tensor"} * @index',
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    ratio_graph(
        "Memory bandwidth of instances",
        "In use, of the most there is. Hopper and later.",
        "gpuscape_mig_instance_memory_bandwidth_ratio{@node} * @index",
        _LEGEND,
        link=NODE_OF_SERIES,
    ),
    Timeline(
        title="Instances held by pods",
        description="Over time.",
        queries=(ask("gpuscape_mig_instance_allocated{@node} * @index", _LEGEND),),
        words={0: ("free", Color.QUIET), 1: ("held", Color.NEUTRAL)},
        link=NODE_OF_SERIES,
    ),
    graph(
        "Power of GPUs with MIG on",
        "Of whole boards: nobody measures the part of an instance, and sums over"
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
    description="GPU instances: how GPUs are split, and what the parts do.",
    variables=(CLUSTER, INSTANCES, GPU),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Layout", panels=_LAYOUT),
        Row(title="Use", panels=_USE),
    ),
)
