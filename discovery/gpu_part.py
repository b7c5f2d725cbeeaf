# SPDX-License-Identifier: Apache-2.0
"""Parts of a GPU, as readings, the kubelet's allocation and metrics name them."""

from __future__ import annotations

from typing import NamedTuple


class GpuPart(NamedTuple):
    """A whole GPU, or one GPU instance of it.

    By bus id, since a lost GPU has no UUID and still has device users. Plans of MIG layouts name
    parts by UUID, in :class:`mig.users.device_users.MigPart`: a plan outlives a reading.
    """

    bus_id: str
    gpu_instance_id: int | None = None
