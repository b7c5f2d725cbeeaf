# SPDX-License-Identifier: Apache-2.0
"""The kinds of NVLink fabric, as labels and the topology annotation publish them."""

from __future__ import annotations

from enum import StrEnum


class FabricKind(StrEnum):
    """How the GPUs of one node are linked by NVLink."""

    NONE = "none"
    BRIDGE = "bridge"  # isolated pairs
    MESH = "mesh"  # direct links among more than two
    SWITCH = "switch"  # through NVSwitch
