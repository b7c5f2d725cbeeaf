# SPDX-License-Identifier: Apache-2.0
"""Fields of DCGM that are not served, and why. Pure.

Source of names: ``dcgm_fields.h`` of DCGM 4.6.0, with those that it keeps for older programs; of
what DCGM makes of them, its ``dcgm_fields.cpp`` and ``DcgmCacheManager.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

_NO_VALUE = "DCGM gives no value for it either"
_STRUCTURE = "it is a structure and no number"
_DCGM_ITSELF = "it is about DCGM's own process"
_VGPU_HOST = "it is about vGPU hosts, which are not supported"
_SWITCH = "NVML does not show NVSwitches; gpuscape_nvswitch_errors_total counts their errors"
_CPU = "it is about the CPU and not a GPU"
_NIC = "it is about network adapters and not a GPU"
_TOO_SMALL = "with the six decimals that DCGM's numbers have, it is always 0; the raw one is served"
_REGISTERS = "it stands in a port's registers (PPCNT, PPRM), and NVML documents no numbers of ports"

UNSERVED: Mapping[str, str] = {
    # what DCGM computes or keeps itself
    "DCGM_EXP_GPU_HEALTH_STATUS": "its rules are DCGM's own",
    "DCGM_FI_*UNKNOWN": _NO_VALUE,
    "DCGM_FI_*FIRST_*": _NO_VALUE,
    "DCGM_FI_*LAST_*": _NO_VALUE,
    "DCGM_FI_INTERNAL_*": _NO_VALUE,
    "DCGM_FI_MAX_*": _NO_VALUE,
    "DCGM_FI_*PROCESS_NAME": _DCGM_ITSELF,
    "DCGM_FI_*BIND*_EVENT": _DCGM_ITSELF,
    "DCGM_FI_DEV_DIAG_*": "it is the result of one of DCGM's diagnostics",
    "DCGM_FI_DEV_FABRIC_MANAGER_ERROR*": "its numbers are DCGM's own errors",
    "DCGM_FI_DEV_MIG_MAX_SLICES": "it is DCGM's own count",
    "DCGM_FI_DEV_GPM_SUPPORT": "DCGM_FI_PROF_SM_ACTIVE has series where the GPU has GPM",
    # what DCGM has no value for
    "DCGM_FI_DEV_PCIE_?X_THROUGHPUT": _NO_VALUE,
    "dcgm_pcie_?x_throughput": _NO_VALUE,
    "DCGM_FI_DEV_NVLINK_ERROR": _NO_VALUE,
    "DCGM_FI_DEV_GPU_NVLINK_ERRORS": _NO_VALUE,
    # what is no number
    "DCGM_FI_*TOPOLOGY*": _STRUCTURE,
    "DCGM_FI_SYSTEM_GPU_AFFINITY": _STRUCTURE,
    "DCGM_FI_*SYNC_BOOST": _STRUCTURE,
    "DCGM_FI_DEV_*SUPPORTED*": _STRUCTURE,
    "DCGM_FI_DEV_*ACCOUNTING*": _STRUCTURE,
    "DCGM_FI_DEV_*POWER_PROFILE*": _STRUCTURE,
    "DCGM_FI_DEV_MIG_ATTRIBUTES": _STRUCTURE,
    "DCGM_FI_DEV_MIG_?I_INFO": _STRUCTURE,
    "DCGM_FI_DEV_ENC_STATS": _STRUCTURE,
    "DCGM_FI_DEV_FBC_*": _STRUCTURE,
    # what is no GPU's
    "DCGM_FI_DEV_CPU_[!A]*": _CPU,
    "DCGM_FI_DEV_SYSIO_*": _CPU,
    "DCGM_FI_DEV_MODULE_POWER_*": _CPU,
    "DCGM_FI_DEV_CONNECTX_*": _NIC,
    "DCGM_FI_DEV_*NVSWITCH_*": _SWITCH,
    "DCGM_FI_DEV_SXID_*": _SWITCH,
    "DCGM_FI_DEV_VGPU_[A-KM-Z]*": _VGPU_HOST,
    "DCGM_FI_DEV_CREATABLE_VGPU_TYPE_IDS": _VGPU_HOST,
    "DCGM_FI_IMEX_*": "it is about the IMEX service and not a GPU",
    # what is read in another shape
    "DCGM_FI_DEV_NVLINK_GET_STATE": "it is about one link, as gpuscape_nvlink_up is",
    "DCGM_FI_*_PER_LINK*": "the fields with L0 to L17 in their names are the same, link by link",
    # what could be
    **dict.fromkeys(
        (
            "DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL",
            "DCGM_FI_DEV_NVLINK_REPLAY_TOTAL",
            "DCGM_FI_DEV_NVLINK_ERROR_DL_*",
        ),
        "NVML does not say which links it covers; DCGM_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL cover all",
    ),
    "DCGM_FI_DEV_INFOROM_*VALID": "the driver would read the whole InfoROM for it",
    "DCGM_FI_DEV_NVLINK_PP*": _REGISTERS,
    "DCGM_FI_DEV_NVLINK_*_BER_RATIO": _TOO_SMALL,
    "DCGM_FI_DEV_NVLINK_COUNT_*_BER_FLOAT": _TOO_SMALL,
}
"""Name, with the marks of fnmatch, to the reason. The first that matches counts."""


def why_unserved(name: str) -> str | None:
    """Why DCGM's field of this name is not served; None where no reason is known."""
    reasons = (why for pattern, why in UNSERVED.items() if fnmatchcase(name, pattern))
    return next(reasons, None)
