# SPDX-License-Identifier: Apache-2.0
"""Two expositions of a node: dcgm-exporter of before 4.8.3 and a later exporter, on two GPUs."""

from __future__ import annotations

_GPUS = tuple(
    f'gpu="{index}",UUID="GPU-{index}",device="nvidia{index}",modelName="NVIDIA A100"{pod}'
    for index, pod in ((0, ',namespace="ml",pod="train"'), (1, ""))
)


def family(name: str, kind: str, labels: str, gpus: tuple[str, ...] = _GPUS) -> str:
    """A metric with a series for each GPU."""
    series = (f"{name}{{{gpu},{labels}}} {10 + place}\n" for place, gpu in enumerate(gpus))
    return f"# TYPE {name} {kind}\n" + "".join(series)


OLD = "".join(
    (
        family("DCGM_FI_DEV_GPU_TEMP", "gauge", 'Hostname="node"'),
        family("DCGM_FI_DEV_POWER_USAGE", "gauge", 'Hostname="node"'),
        family("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", 'Hostname="node"'),
        family("DCGM_FI_DEV_GPU_UTIL", "gauge", 'Hostname="node"'),
        family("DCGM_FI_DEV_FB_USED", "gauge", 'Hostname="node"'),
        family("DCGM_FI_DEV_FB_FREE", "gauge", 'Hostname="node",mode="old"'),
    )
)
NEW = "".join(
    (
        family("DCGM_FI_DEV_GPU_TEMP", "gauge", 'hostname="node"'),
        family("DCGM_FI_DEV_BOARD_POWER_WATTS", "gauge", 'hostname="node"'),
        family("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", 'hostname="node"'),
        family("DCGM_FI_DEV_GPU_UTIL", "gauge", 'hostname="node"', _GPUS[:1]),
        family("DCGM_FI_DEV_FB_USED", "gauge", 'hostname="node"', (*_GPUS, _GPUS[0] + ',x="y"')),
        family("DCGM_FI_DEV_FB_FREE", "gauge", 'hostname="node",mode="new"'),
    )
)
