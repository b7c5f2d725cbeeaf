# SPDX-License-Identifier: Apache-2.0
"""Profiling of GPUs and GPU instances against NVML's metric ids."""

from __future__ import annotations

import pynvml

from discovery.sample import GpuSample
from exporters.gpuscape.families import GpuscapeFamilies
from exporters.gpuscape.profiling_families import PROFILES
from tests import build
from tests.exporters.gpuscape_series import instance, of, split, told

METRICS = {
    ("graphics_active_ratio", ""): "GRAPHICS_UTIL",
    ("sm_active_ratio", ""): "SM_UTIL",
    ("sm_occupancy_ratio", ""): "SM_OCCUPANCY",
    ("pipe_active_ratio", "int"): "INTEGER_UTIL",
    ("pipe_active_ratio", "tensor"): "ANY_TENSOR_UTIL",
    ("pipe_active_ratio", "tensor_dfma"): "DFMA_TENSOR_UTIL",
    ("pipe_active_ratio", "tensor_hmma"): "HMMA_TENSOR_UTIL",
    ("pipe_active_ratio", "tensor_dmma"): "DMMA_TENSOR_UTIL",
    ("pipe_active_ratio", "tensor_imma"): "IMMA_TENSOR_UTIL",
    ("pipe_active_ratio", "fp64"): "FP64_UTIL",
    ("pipe_active_ratio", "fp32"): "FP32_UTIL",
    ("pipe_active_ratio", "fp16"): "FP16_UTIL",
    ("memory_bandwidth_ratio", ""): "DRAM_BW_UTIL",
    ("pcie_received_bytes_per_second", ""): "PCIE_RX_PER_SEC",
    ("pcie_sent_bytes_per_second", ""): "PCIE_TX_PER_SEC",
    ("nvlink_received_bytes_per_second", ""): "NVLINK_TOTAL_RX_PER_SEC",
    ("nvlink_sent_bytes_per_second", ""): "NVLINK_TOTAL_TX_PER_SEC",
    ("c2c_received_bytes_per_second", ""): "C2C_TOTAL_RX_PER_SEC",
    ("c2c_sent_bytes_per_second", ""): "C2C_TOTAL_TX_PER_SEC",
} | {
    ("engine_active_ratio", f"{engine}{at}"): f"{engine.upper()}_{at}_UTIL"
    for engine, count in (("nvdec", 8), ("nvjpg", 8), ("nvofa", 2))
    for at in range(count)
}


def test_every_number_is_the_metric_that_nvml_calls_so() -> None:
    ours = {(it.name, word): metric for it in PROFILES for word, metric in it.metrics.items()}

    assert ours == {
        key: getattr(pynvml, f"NVML_GPM_METRIC_{metric}") for key, metric in METRICS.items()
    }


def test_values_of_a_gpu_and_its_instances_are_told_apart() -> None:
    gpu = split(0, instance(1), instance(2))
    sample = build.only(
        GpuSample,
        bus_id=gpu.bus_id,
        at_seconds=0.0,
        profiling=((1, 0.75),),
        mig_profiling=((1, ((1, 0.5),)), (2, ((5, 1.0),))),
    )

    body = GpuscapeFamilies().render(build.node([gpu]), [sample])

    assert of(body, "gpuscape_gpu_graphics_active_ratio") == {(): 0.75}
    assert of(body, "gpuscape_mig_instance_graphics_active_ratio") == {
        (("gpu_instance_id", "1"),): 0.5
    }
    assert of(body, "gpuscape_mig_instance_pipe_active_ratio") == {
        (("gpu_instance_id", "2"), ("pipe", "tensor")): 1
    }
    assert of(body, "gpuscape_gpu_pipe_active_ratio") == {}


def test_before_hopper_there_is_nothing() -> None:
    gpu = build.gpu()
    body = GpuscapeFamilies().render(build.node([gpu]), [build.sample(gpu)])

    assert b"_active_ratio{" not in body.replace(b"gpuscape_gpu_active_ratio", b"")
    assert told("gpuscape_gpu_sm_occupancy_ratio", build.node([gpu]), [build.sample(gpu)]) == {}
