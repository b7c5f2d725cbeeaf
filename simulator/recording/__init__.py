# SPDX-License-Identifier: Apache-2.0
"""Recordings of real machines: take one, make it anonymous, write it, read it again.

The simulator owns the file's format and replays it; this package stands above it.
"""

from simulator.recording.anonymous import anonymise
from simulator.recording.capture import capture
from simulator.recording_file import (
    SCHEMA,
    HostFiles,
    Recording,
    encode,
    load_recording,
    save_recording,
)

__all__ = [
    "capture",
    "anonymise",
    "encode",
    "save_recording",
    "load_recording",
    "Recording",
    "HostFiles",
    "SCHEMA",
]
