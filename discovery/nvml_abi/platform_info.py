# SPDX-License-Identifier: Apache-2.0
"""nvmlPlatformInfo_v2_t with numbers as numbers: pynvml has them as characters."""

from __future__ import annotations

import ctypes


class PlatformInfoV2(ctypes.Structure):
    """nvmlPlatformInfo_v2_t. Source: nvml.h."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("ibGuid", ctypes.c_ubyte * 16),
        ("chassisSerialNumber", ctypes.c_char * 16),
        ("slotNumber", ctypes.c_ubyte),
        ("trayIndex", ctypes.c_ubyte),
        ("hostId", ctypes.c_ubyte),
        ("peerType", ctypes.c_ubyte),
        ("moduleId", ctypes.c_ubyte),
    )
