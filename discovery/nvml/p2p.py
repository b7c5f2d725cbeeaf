# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU can reach the memory of the others over NVLink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pynvml

from discovery.driver_errors import GpuLost
from discovery.model import Gap, Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import whole

Peers = Iterable[tuple[str, Handle]]
"""Bus id and handle of the other GPUs. Going through them may announce which is next."""

_CALL = "nvmlDeviceGetP2PStatus"
_WHAT = "nvlink_p2p"
_STATUS = whole(0xFF)
"""NVML_P2P_STATUS_*; newer drivers may have more than the seven of nvml.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class P2P:
    """What one GPU can do with the others; the same from discovery to discovery."""

    statuses: tuple[tuple[str, int], ...]
    """Value of :attr:`discovery.sample.GpuSample.nvlink_p2p`."""
    gaps: tuple[Gap, ...]
    """What is not known; part of every sample."""


def find_p2p(handle: Handle, peers: Peers) -> P2P:
    """Read each pair of this GPU with another, in this direction.

    A pair with a lost GPU does not show which of the two is lost, so that is a gap.
    """
    calls = Calls()
    statuses = []
    for peer, other in peers:
        try:
            index = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
            status = calls.ask(_WHAT, _CALL, handle, other, index, convert=_STATUS)
        except GpuLost as error:
            calls.miss(_WHAT, Reason.LOST, _CALL, str(error))
            continue
        if status is not None:
            statuses.append((peer, status))
    return P2P(statuses=tuple(statuses), gaps=tuple(calls.gaps))
