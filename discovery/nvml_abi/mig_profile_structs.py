# SPDX-License-Identifier: Apache-2.0
"""Version 3 of the MIG profile structs, which nvml.h has and pynvml does not.

Source: nvml.h, nvmlGpuInstanceProfileInfo_v3_t and nvmlComputeInstanceProfileInfo_v3_t.
"""

from __future__ import annotations

import ctypes
from typing import Final

from discovery.nvml_abi.c_values import CType

_NAME_BYTES: Final = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE."""

GPU_CAPS_GFX: Final = 0x2
"""NVML_GPU_INSTANCE_PROFILE_CAPS_GFX."""
COMPUTE_CAPS_GFX: Final = 0x1
"""NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX."""


def _counts(*names: str) -> list[tuple[str, CType]]:
    return [(name, ctypes.c_uint) for name in names]


class GpuInstanceProfileInfoV3(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_v3_t."""

    _fields_ = [  # ctypes wants a list
        *_counts("version", "id", "sliceCount", "instanceCount", "multiprocessorCount"),
        *_counts("copyEngineCount", "decoderCount", "encoderCount", "jpegCount", "ofaCount"),
        ("memorySizeMB", ctypes.c_ulonglong),
        ("name", ctypes.c_char * _NAME_BYTES),
        ("capabilities", ctypes.c_uint),
    ]


class ComputeInstanceProfileInfoV3(ctypes.Structure):
    """nvmlComputeInstanceProfileInfo_v3_t."""

    _fields_ = [  # ctypes wants a list
        *_counts("version", "id", "sliceCount", "instanceCount", "multiprocessorCount"),
        *_counts("sharedCopyEngineCount", "sharedDecoderCount", "sharedEncoderCount"),
        *_counts("sharedJpegCount", "sharedOfaCount"),
        ("name", ctypes.c_char * _NAME_BYTES),
        ("capabilities", ctypes.c_uint),
    ]


def version(struct: CType) -> int:
    """NVML_STRUCT_VERSION of a struct of version 3."""
    return ctypes.sizeof(struct) | 3 << 24
