# SPDX-License-Identifier: Apache-2.0
"""Words and limits of ``gpuscape.io/mig-layout``: a node's desired MIG layout, in one annotation.

The value is JSON, or YAML in one line. Text is the name of a configuration; a mapping has
selectors of GPUs and the layout of each:

    {"0-3": {"3g.40gb": 2}, "4,5": "off", "GPU-<uuid>": {"3g.40gb@4": 1, "4g.40gb@0": 1}}

The admin writes it, the agent reads it.
"""

from __future__ import annotations

from typing import Final

from api import keys

SOURCE: Final = f"annotation {keys.MIG_LAYOUT}"
"""The annotation's name in messages."""
MOST_BYTES: Final = 4096
"""The annotation's size: every watcher of Nodes receives it. Sixteen GPUs with seven instances each
take 1,000."""

ALL: Final = "all"
"""Selector: all GPUs with MIG. Others are indices (``0``), ranges of them (``0-3``), UUIDs and PCI
bus ids, several separated by commas."""
OFF: Final = "off"
"""Layout: MIG off."""
ON: Final = "on"
"""Layout: MIG on without instances, as ``{}`` is. Others are profiles with their counts."""
AT: Final = "@"
"""Separator between a profile and the memory unit where its one instance is to start."""
MOST_INDEX: Final = 1023
"""Highest index of a GPU in a selector."""
