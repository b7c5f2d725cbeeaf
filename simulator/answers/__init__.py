# SPDX-License-Identifier: Apache-2.0
"""The simulated machine's answers, one small function for each entry point."""

from simulator.answers import (
    compute_instances,
    fields,
    gpm_answers,
    gpu_instances,
    identity,
    link_answers,
    memory,
    mig_devices,
    process_answers,
    sensors,
    system,
    topology_answers,
)
from simulator.answers.registry import ANSWERS

__all__ = [
    "ANSWERS",
    "system",
    "identity",
    "memory",
    "mig_devices",
    "gpu_instances",
    "compute_instances",
    "link_answers",
    "topology_answers",
    "sensors",
    "fields",
    "gpm_answers",
    "process_answers",
]
