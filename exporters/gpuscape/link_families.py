# SPDX-License-Identifier: Apache-2.0
"""NVLinks of each GPU: expected and active ones, traffic and errors. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from api.fabric_kind import FabricKind
from discovery.model import NvidiaFacts
from discovery.sample import LinkCounters, LinkError, ReadingGroup
from exporters.gpuscape.gpuscape_family import (
    GPU,
    GpuscapeFamily,
    Series,
    of_gpu_parts,
    of_gpus,
    of_nvidia_gpus,
)
from exporters.gpuscape.node_view import GpuView, NodeView

_LINK = (*GPU, "link")

_ROUTINE = (LinkError.EFFECTIVE, LinkError.SYMBOL)
"""Bit errors on the wire: NVLink 5 has some at any time, and corrects them."""


def _links(node: NodeView) -> Series:
    for gpu, nvidia in node.nvidia_gpus:
        for link in nvidia.links:
            yield (*gpu.labels, str(link.link)), link.active


def _rates(node: NodeView) -> Series:
    for gpu, nvidia in node.nvidia_gpus:
        for link in nvidia.links:
            yield (*gpu.labels, str(link.link)), link.bytes_per_second


def _ends(node: NodeView) -> Series:
    for gpu, nvidia in node.nvidia_gpus:
        for link in nvidia.links:
            if link.active and link.peer is not None:
                yield (*gpu.labels, str(link.link), link.peer, link.peer_bus_id or ""), 1


def _counters(read: Callable[[LinkCounters], int | None]) -> Callable[[NodeView], Series]:
    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            for link in gpu.sample.links:
                yield (*gpu.labels, str(link.link)), read(link)

    return series


def _errors(node: NodeView) -> Series:
    for gpu in node.gpus:
        for link in gpu.sample.links:
            for error, count in link.errors:
                yield (*gpu.labels, str(link.link), error.replace("-", "_")), count


def _old_errors(gpu: GpuView) -> dict[str, float | None]:
    errors = gpu.sample.nvlink_errors
    if errors is None:
        return {}
    return {field.name: getattr(errors, field.name) for field in fields(errors)}


def _transfer_errors(gpu: GpuView) -> int | None:
    """Transfer errors of either generation of counters; None where the GPU has neither."""
    old, new = gpu.sample.nvlink_errors, gpu.sample.links
    counts = [] if old is None else [old.crc_data, old.replay, old.recovery]
    counts += [count for link in new for error, count in link.errors if error not in _ROUTINE]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _active(nvidia: NvidiaFacts) -> int:
    return sum(link.active is True for link in nvidia.links)


def _known(nvidia: NvidiaFacts) -> bool:
    return bool(nvidia.links) and all(link.active is not None for link in nvidia.links)


def _expected(node: NodeView) -> Series:
    """Links expected up, as in health's rule for dead links.

    Only where all GPUs should be linked and MIG is off.
    """
    if node.snapshot.topology.kind not in (FabricKind.MESH, FabricKind.SWITCH):
        return
    whole_gpus = [(gpu, nvidia) for gpu, nvidia in node.nvidia_gpus if not gpu.gpu.mig_enabled]
    expected_by_model: dict[str | None, int] = {}
    for gpu, nvidia in whole_gpus:
        model = gpu.gpu.model
        expected_by_model[model] = max(expected_by_model.get(model, 0), _active(nvidia))
    for gpu, nvidia in whole_gpus:
        if _known(nvidia):
            yield gpu.labels, expected_by_model[gpu.gpu.model]


FAMILIES: tuple[GpuscapeFamily, ...] = (
    of_nvidia_gpus(
        "gpuscape_gpu_nvlinks",
        "NVLink ports of the GPU.",
        lambda nvidia: len(nvidia.links) if _known(nvidia) else None,
        source="ports for which nvmlDeviceGetNvLinkState answers",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_nvlinks_active",
        "NVLinks of the GPU that are up.",
        lambda nvidia: _active(nvidia) if _known(nvidia) else None,
        source="nvmlDeviceGetNvLinkState",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_nvlinks_expected",
        help="NVLinks that should be up: the most that any GPU of this model in the node has up.",
        labels=GPU,
        series=_expected,
        source="gpuscape_gpu_nvlinks_active; only where all GPUs are linked, and not under MIG,"
        " which takes links down on Ampere",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_up",
        help="1 if the NVLink is up, else 0.",
        labels=_LINK,
        series=_links,
        source="nvmlDeviceGetNvLinkState",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_info",
        help="Device at the other end of an NVLink that is up; always 1.",
        labels=(*_LINK, "peer", "peer_pci_bus_id"),
        series=_ends,
        source="nvmlDeviceGetNvLinkRemote{DeviceType,PciInfo_v2}; a bus id for GPUs only",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_line_rate_bytes_per_second",
        help="Maximum rate of the NVLink in one direction.",
        labels=_LINK,
        series=_rates,
        source="field NVML_FI_DEV_NVLINK_GET_SPEED of each link, else the GPU's",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_received_bytes_total",
        help="Data that came over one NVLink since the driver was loaded.",
        labels=_LINK,
        series=_counters(lambda link: link.received_bytes),
        groups=(ReadingGroup.LINKS,),
        source="field NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX of the link",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_sent_bytes_total",
        help="Data that went over one NVLink since the driver was loaded.",
        labels=_LINK,
        series=_counters(lambda link: link.sent_bytes),
        groups=(ReadingGroup.LINKS,),
        source="field NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX of the link",
    ),
    GpuscapeFamily(
        name="gpuscape_nvlink_errors_total",
        help="Errors and recoveries of one NVLink since the driver was loaded; NVLink 5 and later.",
        labels=(*_LINK, "error"),
        series=_errors,
        groups=(ReadingGroup.LINKS,),
        source="fields NVML_FI_DEV_NVLINK_COUNT_* of the link",
    ),
    of_gpu_parts(
        "gpuscape_gpu_nvlink_errors_total",
        "Errors over all NVLinks since the driver was loaded; up to NVLink 4.",
        "error",
        _old_errors,
        groups=(ReadingGroup.NVLINK_ERRORS,),
        source="fields NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL",
    ),
    of_gpus(
        "gpuscape_gpu_nvlink_transfer_errors_total",
        "Errors over all NVLinks for which data was sent again or lost, since the driver was"
        " loaded.",
        _transfer_errors,
        groups=(ReadingGroup.NVLINK_ERRORS, ReadingGroup.LINK_ERRORS),
        source="gpuscape_nvlink_errors_total but for effective and symbol; up to NVLink 4"
        " gpuscape_gpu_nvlink_errors_total but for crc_flit",
    ),
)
