# SPDX-License-Identifier: Apache-2.0
"""Words for values that NVML numbers: architectures, virtualization modes, ends of links."""

from __future__ import annotations

from enum import StrEnum


class Architecture(StrEnum):
    """GPU architecture by NVML's number. Source: nvmlDeviceGetArchitecture, nvml.h."""

    KEPLER = "kepler"
    MAXWELL = "maxwell"
    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA_LOVELACE = "ada-lovelace"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    RUBIN = "rubin"
    OTHER = "other"


class Virtualization(StrEnum):
    """How the GPU is virtualized for this system. Source: nvmlDeviceGetVirtualizationMode."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host-vgpu"
    HOST_VSGA = "host-vsga"


class LinkPeer(StrEnum):
    """Kind of device at the other end of an NVLink. Source: nvmlDeviceGetNvLinkRemoteDeviceType."""

    GPU = "gpu"
    NPU = "npu"
    SWITCH = "switch"
    UNKNOWN = "unknown"
