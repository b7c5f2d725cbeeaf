# SPDX-License-Identifier: Apache-2.0
"""How much the agent may put on its Node: the policies refuse more, so sinks stay within."""

from __future__ import annotations

from typing import Final

PREFIXES: Final = ("nvidia.com/", "gpuscape.io/")
"""Prefixes of the label keys that the agent writes; other programs use the first one too."""

MOST_LABELS: Final = 256
"""Labels under these prefixes on a Node, from all writers; and in a NodeFeature."""

MOST_ANNOTATION_CHARACTERS: Final = 8192
"""All annotations of the agent on its Node together."""

MOST_STATE_CHARACTERS: Final = 16384
"""The state in the agent's Lease; one whose 110 pods all hold GPUs takes about 2,000."""

MOST_HOLDER_CHARACTERS: Final = 64
"""Name of a Lease's holder; a pod's UID has 36."""

MOST_NODE_NAME_CHARACTERS: Final = 253
"""Name of a Node, the holder of a slot's Lease, and of any other object. Source: Kubernetes
documentation, "Object Names and IDs"."""

MOST_RECORD_CHARACTERS: Final = 4096
"""The coordinator's record in a slot's Lease: names, and the values that labels and annotations of
one Node had before."""

MOST_ROLLOUTS_CHARACTERS: Final = 16384
"""The coordinator's memory of rollouts in its leader's Lease."""

LONGEST_LEASE_SECONDS: Final = 600
"""Term of the agent's Lease: how long a silent holder keeps the node's next agent waiting."""

MOST_IDLE_ANNOTATION_BYTES: Final = 4096
"""All annotations of the agent while no MIG change is under way: every watcher receives them."""

MOST_CERTIFICATE_CHARACTERS: Final = 65536
"""A value in a Secret of the extender's certificates, in base64 as the API has it: 49,152 bytes.
A value with two authorities has 2,000 characters."""
