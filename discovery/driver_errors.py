# SPDX-License-Identifier: Apache-2.0
"""Errors of the NVIDIA driver and of the device reader, sorted as in :mod:`base.errors`."""

from __future__ import annotations

from base.errors import Transient


class DriverAbsent(Transient):
    """No NVIDIA driver answers: library or kernel module missing; it may be loaded later."""


class DriverMismatch(Transient):
    """Library and kernel module are of different versions, as during a driver upgrade."""


class GpuLost(Transient):
    """A GPU fell off the bus or needs a reset; the others go on."""


class MigUnread(Transient):
    """The MIG state of a GPU cannot be read in full, and half of it is no answer."""


class MigChangeFailed(Transient):
    """A call that changes MIG failed, or its effect is not there; the text has cause and fix."""

    def __init__(
        self, why: str, *, passes: bool = False, in_use: bool = False, needs_reset: bool = False
    ) -> None:
        """``passes``: the cause may go away by itself within seconds; ``in_use``: it is a program
        that has the GPU open, which the driver does not name; ``needs_reset``: the driver cannot
        reset the GPU."""
        super().__init__(why)
        self.passes = passes
        self.in_use = in_use
        self.needs_reset = needs_reset


class ReaderStuck(Transient):
    """The device reader did not answer within its deadline."""


class ReaderGone(Transient):
    """The device reader ended or closed its descriptor."""


class ProtocolViolation(Transient):
    """A frame was too large, not valid, or out of order; the reader is replaced."""


class Released(Transient):
    """All NVML handles are closed on request; nothing is read until that request ends."""
