"""Errors sorted by what the caller does next: wait and retry, or report and change nothing."""


class GpuscapeError(Exception):
    """Base of all errors raised on purpose; its text is one sentence with cause and fix."""


class Transient(GpuscapeError):
    """Keep the last snapshot and try again with backoff."""


class Permanent(GpuscapeError):
    """Report it and change nothing: trying again cannot help until somebody acts."""


class DriverAbsent(Transient):
    """No NVIDIA driver answers: library or kernel module missing; it may be loaded later."""


class DriverMismatch(Transient):
    """Library and kernel module are of different versions, as during a driver upgrade."""


class GpuLost(Transient):
    """One GPU fell off the bus or needs a reset; the others go on."""


class ReaderStuck(Transient):
    """The device reader did not answer within its deadline."""


class ReaderGone(Transient):
    """The device reader ended or closed its descriptor."""


class ProtocolViolation(Transient):
    """A frame was too large, not valid, or out of order; the reader is replaced."""


class BadInput(Permanent):
    """Something a person wrote is wrong: the text names the file, line or key, and the fix."""


class Released(Transient):
    """All NVML handles are given back on request; nothing is read until that request ends."""
