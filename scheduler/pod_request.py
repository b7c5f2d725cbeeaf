# SPDX-License-Identifier: Apache-2.0
"""A pod that has to be placed, as far as scoring needs to know it."""

from __future__ import annotations

import msgspec

from api.gpu_request import GpuRequest


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's request for GPUs, with the pod's identity. A struct, as it has to be made quickly:
    for each call and each change of a pod."""

    namespace: str
    name: str
    uid: str
    wish: GpuRequest
    job: str | None = None
    """Equal for pods of one job, which stay on one product, and in one NVLink clique."""
