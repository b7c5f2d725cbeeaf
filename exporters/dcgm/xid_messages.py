# SPDX-License-Identifier: Apache-2.0
"""What XID codes mean, in a few words for the label ``err_msg``.

Source of the facts: NVIDIA's XID catalogue and ``nverror.h`` of the open kernel modules. The
words are our own, so alerts match on ``err_code``, which is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_ERROR = "No Error"
UNKNOWN = "Unknown Error"

_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO_DECODERS = (68, 83, 84, 88, 89, 96, 97, 98)
_VIDEO_ENCODERS = (47, 65, 73, 142)
_JPEG_ENGINES = (82, *range(99, 106))
_OPTICAL_FLOW = (86, 139)

XID_MESSAGES: Mapping[int, str] = {
    0: NO_ERROR,
    **dict.fromkeys((1, 2, 3, 4, 6, 11, 25, 32), "Bad command in a push buffer"),
    7: "Bad address in a push buffer",
    8: "GPU no longer works on its commands",
    9: "Driver set up a GPU engine wrongly",
    12: "Driver could not handle a GPU exception",
    13: "Exception in the graphics or compute engine",
    16: "Display engine hangs",
    18: "PCI bus mastering is switched off",
    19: "Display engine error",
    20: "Bad command in an MPEG push buffer",
    21: "Bad command in a motion estimation push buffer",
    22: "Bad command in a video push buffer",
    24: "Waiting for a semaphore took too long",
    26: "Frame buffer did not answer in time",
    **dict.fromkeys((27, 28, 29, 34, 35, 36, 42), "Exception in the video engine"),
    30: "Access to a semaphore failed",
    31: "Page fault: access to GPU memory that is not mapped",
    33: "Security engine error",
    **dict.fromkeys((37, 38), "Firmware of the driver failed"),
    43: "GPU engine stopped; its application ends",
    44: "Fault of the graphics engine while switching contexts",
    45: "Channel removed after earlier errors",
    46: "GPU did not stop in time",
    48: "Memory error of two bits, not corrected by ECC",
    54: "Power cable of the board is missing",
    56: "Display engine error",
    57: "Memory interface was set up wrongly or cannot be trained",
    58: "Memory interface is not stable",
    59: "Power management unit error",
    60: "Security engine 2 error",
    61: "Power management unit stopped at a breakpoint",
    62: "Power management unit halted",
    63: "Memory page retired or row remapped",
    64: "Memory page could not be retired or row not remapped",
    **dict.fromkeys((66, 67), "Driver accessed what it may not"),
    69: "Command of a wrong class for the graphics engine",
    74: "NVLink error",
    78: "vGPU could not be started",
    79: "GPU has gone from the PCIe bus",
    80: "Commands arrived at the GPU with a wrong checksum",
    81: "VGA error",
    87: "Report of the driver's telemetry",
    90: "Error in the cache before memory",
    92: "Many memory errors of a single bit",
    93: "InfoROM was written more often than it should",
    94: "Memory error contained: only its application ends",
    95: "Memory error not contained: the GPU needs a reset",
    **dict.fromkeys((106, 107), "Test message of out-of-band management"),
    109: "Switching contexts took too long",
    110: "Security fault",
    111: "Display bundle error",
    112: "Display supervisor error",
    113: "DisplayPort link training failed",
    114: "Display pipeline ran empty",
    115: "Display core channel error",
    116: "Display window channel error",
    117: "Display cursor channel error",
    118: "Display pixel pipeline error",
    119: "GPU system processor did not answer in time",
    120: "GPU system processor error",
    121: "Error on the link between GPU and CPU",
    122: "Reading the board's flash memory failed",
    123: "Writing the board's flash memory failed",
    124: "Erasing the board's flash memory failed",
    125: "InfoROM file system failed",
    136: "NVLink training failed",
    137: "NVLink refused a request without the right to it",
    138: "Deep learning accelerator error",
    140: "Memory error not corrected by ECC, and not recovered from",
    141: "Fast path error",
    143: "GPU could not be initialised",
    144: "NVLink SAW error",
    145: "NVLink RLW error",
    146: "NVLink TLW error",
    147: "NVLink TREX error",
    148: "NVLink NVLPW_CTRL error",
    149: "NVLink NETIR error",
    150: "NVLink MSE error",
    151: "Encryption key could not be renewed",
    152: "Deep learning accelerator used a bad address",
    153: "Deep learning accelerator did not answer in time",
    154: "Recovery action of the GPU changed",
    155: "NVLink error reported by software",
    156: "Hardware unit taken out of service",
    157: "Hardware unit could not be taken out of service",
    158: "GPU did not answer in time, fatal",
    159: "Coherent interface error without data",
    160: "Memory channel taken out of service",
    161: "Memory channel could not be taken out of service",
    162: "Power smoothing circuit is on again",
    163: "Power smoothing circuit is off",
    164: "Power smoothing circuit is near its end of life",
    165: "Power smoothing circuit is worn out",
    166: "NVLink encryption error",
    167: "PCIe did not answer in time, fatal",
    168: "GPU has less memory: errors in the write-protected region",
    169: "Microcontroller halted",
    170: "NVLink interrupt in confidential computing mode",
    171: "Error in DRAM that could not be corrected",
    172: "Error in SRAM that could not be corrected",
    **{code: f"Copy engine {number} error" for number, code in enumerate(_COPY_ENGINES)},
    **{code: f"Video decoder {number} error" for number, code in enumerate(_VIDEO_DECODERS)},
    **{code: f"Video encoder {number} error" for number, code in enumerate(_VIDEO_ENCODERS)},
    **{code: f"JPEG engine {number} error" for number, code in enumerate(_JPEG_ENGINES)},
    **{code: f"Optical flow engine {number} error" for number, code in enumerate(_OPTICAL_FLOW)},
}
"""Codes that NVIDIA does not use or describe are not in it."""


def xid_attributes(code: str) -> dict[str, str]:
    """Labels of an XID's series: its code and message, which alerts match on."""
    return {"err_code": code, "err_msg": XID_MESSAGES.get(int(code), UNKNOWN)}
