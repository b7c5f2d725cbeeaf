# SPDX-License-Identifier: Apache-2.0
"""The end of a command on a machine that may have GPUs although none is listed."""

from __future__ import annotations

from cli.failures import NO_DRIVER, REFUSED, CommandFailure
from discovery.model import NodeSnapshot


def end_without_gpus(snapshot: NodeSnapshot) -> None:
    """End the command where the machine may have GPUs although none is listed; else return.

    Raises CommandFailure: REFUSED for an integrated GPU, NO_DRIVER where nothing lists them.
    """
    counts = snapshot.counts
    if snapshot.gpus or not counts.why_unsure:
        return
    code = REFUSED if counts.integrated else NO_DRIVER
    raise CommandFailure(f"no GPU to read: {counts.why_unsure}", code)
