# SPDX-License-Identifier: Apache-2.0
"""What ``gpuscape discover -o json`` prints of a served machine, in the terms of other programs.

The command reads the machine as they do: through the C library, and the files of its driver root.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.foreign.foreign_programs import Foreign
from tests.foreign.mig_layouts import Layout
from tests.kubelet_nodes.links import types_between

Printed = Mapping[str, Any]
"""The whole of it, parsed."""


def discovered(there: Foreign) -> Printed:
    """Run the command on the machine."""
    return printed_by(there, "discover")


def printed_by(there: Foreign, *command: str) -> Printed:
    """Run any command that reads the machine, and parse its JSON."""
    library, root = there.machine.library, there.machine.driver_root
    assert library is not None
    place = ("--library", library, "--host-root", root)
    printed: dict[str, Any] = json.loads(
        there.python("-m", "gpuscape", *command, "-o", "json", *place)
    )
    return printed


def links(printed: Printed) -> list[list[list[int]]]:
    """Types of the links between GPUs, as go-gpuallocator numbers them."""
    direct = [
        Counter(link["peer_bus_id"] for link in gpu["links"] if link["active"])
        for gpu in printed["gpus"]
    ]
    bus_ids = [gpu["bus_id"] for gpu in printed["gpus"]]
    found = types_between(bus_ids, direct, printed["topology"]["pcie"])
    return [[list(types) for types in row] for row in found]


def layouts(printed: Printed) -> dict[int, Layout]:
    """GPU index to its MIG layout."""
    return {
        at: (
            gpu["mig"] is not None and gpu["mig"]["current"],
            Counter(device["profile"] for device in gpu["mig_devices"]),
        )
        for at, gpu in enumerate(printed["gpus"])
    }
