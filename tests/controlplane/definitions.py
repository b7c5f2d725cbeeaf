# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions of a cluster, once it serves them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

PATIENCE_SECONDS = 180.0
"""For the API server to serve a kind."""
_AGAIN_SECONDS = 0.2
_NO_CONDITIONS_YET = "accessor error"
"""``kubectl wait`` ends at a definition that has no conditions yet, and does not wait for them."""


class Cluster(Protocol):
    """What is asked of a cluster here."""

    def kubectl(self, *arguments: str | Path) -> str:
        """The answer. Raises AssertionError with kubectl's own words."""


def wait_until_served(cluster: Cluster, *definitions: str | Path) -> None:
    """Wait for ``definitions``, as kubectl names them: ``crd/x``, ``-f file``, ``crd --all``.

    Raises AssertionError with kubectl's words where they are not served in time.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    limit = f"--timeout={PATIENCE_SECONDS:.0f}s"
    while True:
        try:
            cluster.kubectl("wait", "--for=condition=Established", limit, *definitions)
        except AssertionError as error:
            if _NO_CONDITIONS_YET not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return
