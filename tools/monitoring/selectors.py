# SPDX-License-Identifier: Apache-2.0
"""What the dashboards have in common: their variables, and the selectors that use them."""

from __future__ import annotations

from tools.monitoring.grafana import Query, Variable

_NODE = 'cluster=~"$cluster", instance=~"$instance"'
"""Series of the nodes that are chosen. A cluster without the label is in ``.*`` too."""


def _memory(family: str) -> str:
    """A family in MiB, as bytes: once for each GPU or GPU instance, however many share it."""
    named = (
        f'label_replace(label_replace({family}{{{_NODE}}}, "uuid", "$1", "UUID", "(.+)"),'
        ' "gpu_instance_id", "$1", "GPU_I_ID", "(.+)")'
    )
    return f"max by (cluster, instance, uuid, gpu_instance_id) ({named}) * 1048576"


_WORDS = {
    "@node": _NODE,
    "@pod": f'{_NODE}, namespace=~"$namespace", pod=~"$pod"',
    "@replica": 'cluster=~"$cluster", instance=~"$replica"',
    "@coordinator": 'cluster=~"$cluster"',
    "@dcgm": f'{_NODE}, gpu=~"$gpu"',
    "@index": f"on (cluster, instance, uuid) group_left (index) gpuscape_gpu_info{{{_NODE},"
    ' index=~"$gpu"}',
    "@gpu": "on (cluster, instance, uuid)",
    "@part": "on (cluster, instance, uuid, gpu_instance_id)",
    "@boards": f"max by (cluster, instance, UUID, gpu) (DCGM_FI_DEV_POWER_USAGE{{{_NODE}}})",
    "@memory": _memory("DCGM_FI_DEV_FB_USED"),
    "@room": _memory("DCGM_FI_DEV_FB_FREE"),
    "@held": f"group by (cluster, instance, uuid) (gpuscape_pod_gpu_info{{{_NODE}}})",
}

CLUSTER = Variable(
    name="cluster", label="Cluster", series="gpuscape_build_info", values_of="cluster"
)
INSTANCES = Variable(
    name="instance",
    label="Node",
    series='gpuscape_build_info{cluster=~"$cluster"}',
    values_of="instance",
)
INSTANCE = Variable(
    name="instance",
    label="Node",
    series='gpuscape_build_info{cluster=~"$cluster"}',
    values_of="instance",
    several=False,
)
GPU = Variable(name="gpu", label="GPU", series=f"gpuscape_gpu_info{{{_NODE}}}", values_of="index")
NAMESPACE = Variable(
    name="namespace",
    label="Namespace",
    series=f"gpuscape_pod_gpu_info{{{_NODE}}}",
    values_of="namespace",
)
POD = Variable(
    name="pod",
    label="Pod",
    series=f'gpuscape_pod_gpu_info{{{_NODE}, namespace=~"$namespace"}}',
    values_of="pod",
)
REPLICA = Variable(
    name="replica",
    label="Replica",
    series='gpuscape_scheduler_build_info{cluster=~"$cluster"}',
    values_of="instance",
)


def ask(expression: str, legend: str = "") -> Query:
    """A query in which these words stand for what many have in common:

    ``@node``: matchers for the nodes that are chosen; ``@pod``: the same, and the pods;
    ``@replica``: those for the replicas of the scheduler extender that are chosen;
    ``@coordinator``: those for the coordinators, of which only the one that acts has figures;
    ``@dcgm``: as ``@node``, and the GPUs, for DCGM families; ``@index``: behind ``*``, gives an
    expression by GPU the GPU's index as a label, for the GPUs that are chosen; ``@gpu`` and
    ``@part``: by GPU, and by what pods can hold, a GPU or a GPU instance; ``@boards``: power of
    each GPU; ``@memory`` and ``@room``: bytes of the frame buffer in use and free, of each GPU
    without GPU instances and of each instance; ``@held``: GPUs of which pods hold all or a part.
    """
    for word, text in _WORDS.items():
        expression = expression.replace(word, text)
    return Query(expression=" ".join(expression.split()), legend=legend)
