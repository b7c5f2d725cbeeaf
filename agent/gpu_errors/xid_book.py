# SPDX-License-Identifier: Apache-2.0
"""XID errors since the agent started, folded by GPU, instance and code."""

from __future__ import annotations

from dataclasses import replace

from discovery.model import NodeSnapshot, Xid
from discovery.reader.protocol import XidSeen


class XidBook:
    """Counts XIDs; there are as many entries as different codes, however many errors come."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, int | None, int | None], Xid] = {}

    def add(self, event: XidSeen, unix_seconds: float) -> None:
        """One more error."""
        key = (event.bus_id, event.code, event.gpu_instance_id, event.compute_instance_id)
        before = self._seen.pop(key, None)
        self._seen[key] = Xid(  # at the end: the order is that of the newest errors
            code=event.code,
            count=before.count + 1 if before else 1,
            gpu_instance_id=event.gpu_instance_id,
            compute_instance_id=event.compute_instance_id,
            last_seen_seconds=unix_seconds,
        )

    @property
    def counts(self) -> tuple[tuple[str, Xid], ...]:
        """Bus id and XID of everything counted so far, the newest last."""
        return tuple((key[0], xid) for key, xid in self._seen.items())

    def enter(self, snapshot: NodeSnapshot) -> NodeSnapshot:
        """The snapshot with each GPU's XIDs, the newest last."""
        gpus = tuple(
            replace(gpu, xids=tuple(xid for key, xid in self._seen.items() if key[0] == gpu.bus_id))
            for gpu in snapshot.gpus
        )
        return replace(snapshot, gpus=gpus)
