# SPDX-License-Identifier: Apache-2.0
"""go-gpuallocator, as NVIDIA's device plugin uses it, in one process for all nodes."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.controlplane.builds import binaries
from tests.controlplane.families import ALLOCATOR
from tests.kubelet_nodes.links import LinkTypes


class AllocationError(Exception):
    """The policy found no set, or broke; the text is its own."""


class Allocator:
    """The policy's process; it ends with the block, or with this process. Thread-safe."""

    def __init__(self) -> None:
        """Raises NotPreparedError where it is not built."""
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # it reads until this pipe closes, whatever becomes of us
            [binaries(ALLOCATOR) / "allocator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for us
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def prefer(
        self,
        devices: Sequence[str],
        links: LinkTypes,
        *,
        available: Sequence[str],
        required: Sequence[str] = (),
        size: int,
    ) -> tuple[str, ...]:
        """The set of ``size`` devices that the best-effort policy takes from ``available``.

        ``devices`` names the rows of ``links``. Among sets of the same score the order of
        ``available`` decides. Raises AllocationError.
        """
        request = {
            "devices": devices,
            "links": links,
            "available": available,
            "required": required,
            "size": size,
        }
        answer = self._ask(json.dumps(request))
        if "error" in answer:
            raise AllocationError(answer["error"])
        return tuple(answer["chosen"])

    def _ask(self, line: str) -> dict[str, str]:
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            answer: dict[str, str] = json.loads(self._process.stdout.readline())
        return answer
