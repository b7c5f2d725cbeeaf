# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own programs. Tests that use them are marked ``cluster``: they have to be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of gpu-feature-discovery, nvidia-mig-parted and gpu-links."""
    return binaries(NVIDIA)
