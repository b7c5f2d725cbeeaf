# SPDX-License-Identifier: Apache-2.0
"""The simulated machine's answers, one small function for each entry point."""

from discovery.simulator.answers import (
    compute_instances,
    fields,
    gpm,
    gpu_instances,
    identity,
    links,
    memory,
    mig_devices,
    processes,
    sensors,
    system,
    topology,
)
from discovery.simulator.answers.registry import ANSWERS

__all__ = [
    "ANSWERS",
    "system",
    "identity",
    "memory",
    "mig_devices",
    "gpu_instances",
    "compute_instances",
    "links",
    "topology",
    "sensors",
    "fields",
    "gpm",
    "processes",
]
