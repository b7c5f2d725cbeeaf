# SPDX-License-Identifier: Apache-2.0
"""What several entries of a MIG configuration mean for one GPU."""

from __future__ import annotations

from enum import StrEnum


class Overlap(StrEnum):
    """What happens if entries of one configuration desire different layouts of one GPU."""

    REFUSE = "refuse"
    LAST = "last"
    """The last of these entries decides, as for ``nvidia-mig-parted``."""
